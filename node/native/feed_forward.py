"""The weights of a feed-forward as the kernels have them: of a dense one, or of experts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerline.models.feed_forward_spec import FeedForwardSpec
from node.kernels.structures import Experts, GateKind, Matrix, ScoringKind
from node.native.matrices import NativeMatrix
from node.slices.feed_forward_slices import ExpertsSlices, FeedForwardSlices, Slices

_GATES = {"silu": GateKind.SILU, "gelu_tanh": GateKind.GELU_TANH, "clamped_swiglu": GateKind.CLAMPED_SWIGLU}
_SCORINGS = {
    "softmax": ScoringKind.SOFTMAX,
    "softmax_of_chosen": ScoringKind.SOFTMAX_OF_CHOSEN,
    "sigmoid": ScoringKind.SIGMOID,
    "sigmoid_of_chosen": ScoringKind.SIGMOID_OF_CHOSEN,
}
Load = Callable[[Slices, Slices], NativeMatrix]
"""A matrix of slices, and of those of its bias."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeFeedForward:
    """One that is dense, or an expert."""

    gate_up: NativeMatrix
    down: NativeMatrix

    @classmethod
    def of(cls, slices: FeedForwardSlices, load: Load) -> NativeFeedForward:
        """Loads it."""
        return cls(gate_up=load(slices.gate_up, slices.gate_up_bias), down=load(slices.down, slices.down_bias))

    @property
    def matrices(self) -> tuple[NativeMatrix, ...]:
        """All there are."""
        return self.gate_up, self.down


class NativeExperts:
    """Experts, the shared one the last if there is one, and what chooses them; `structure` points into what is here."""

    def __init__(
        self,
        spec: FeedForwardSpec,
        router: NativeMatrix,
        choice_bias_N: NDArray[np.float32] | None,
        experts: Sequence[NativeFeedForward],
    ) -> None:
        chosen = spec.experts
        assert chosen is not None, "it is of experts"
        self.router = router
        self._kept = choice_bias_N, experts
        self._gate_up = (Matrix * len(experts))(*(own.gate_up.structure for own in experts))
        self._down = (Matrix * len(experts))(*(own.down.structure for own in experts))
        self.matrices = (router, *(matrix for own in experts for matrix in own.matrices))
        self.pairs_of_a_row = spec.experts_of_a_row
        self.widest = max(own.down.inputs for own in experts)
        self.structure = Experts(
            gate_up=self._gate_up,
            down=self._down,
            choice_bias=None if choice_bias_N is None else choice_bias_N.ctypes.data,
            count=chosen.count,
            chosen=chosen.chosen,
            groups=chosen.groups,
            chosen_groups=chosen.chosen_groups,
            group_best=chosen.group_best,
            scoring=_SCORINGS[chosen.scoring],
            normalised=chosen.normalised,
            shared=chosen.shared_intermediate > 0,
            shared_gate=chosen.shared_gate,
            activation=gate_kind(spec),
            scale=chosen.scale,
            weighs_input=chosen.weighs_input,
        )

    @property
    def address(self) -> int:
        """Of its structure."""
        return ctypes.addressof(self.structure)


def gate_kind(spec: FeedForwardSpec) -> GateKind:
    """What the kernels call its activation."""
    return _GATES[spec.activation]


def load_experts(
    spec: FeedForwardSpec,
    slices: ExpertsSlices,
    load: Load,
    load_router: Load,
    load_vector: Callable[[Slices], NDArray[np.float32] | None],
) -> NativeExperts:
    """Those of these slices."""
    experts = [NativeFeedForward.of(own, load) for own in slices.experts]
    router = load_router(slices.router, slices.router_bias)
    return NativeExperts(spec, router, load_vector(slices.choice_bias), experts)
