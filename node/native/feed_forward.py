"""The weights of a feed-forward as the kernels have them: of a dense one, or of experts."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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

    @property
    def row_matrices(self) -> tuple[NativeMatrix, ...]:
        """Those that all rows of a step are multiplied with."""
        return self.matrices


class NativeExperts:
    """Experts, the shared one the last if there is one, and what chooses them; `structure` points into what is here."""

    def __init__(
        self,
        spec: FeedForwardSpec,
        router: NativeMatrix,
        choice_bias_N: NDArray[np.float32] | None,
        scales_N: NDArray[np.float32] | None,
        experts: Sequence[NativeFeedForward],
    ) -> None:
        chosen = spec.experts
        assert chosen is not None, "it is of experts"
        self.router = router
        self._kept = choice_bias_N, scales_N, experts
        self._gate_up = (Matrix * len(experts))(*(own.gate_up.structure for own in experts))
        self._down = (Matrix * len(experts))(*(own.down.structure for own in experts))
        self.matrices = (router, *(matrix for own in experts for matrix in own.matrices))
        self.pairs_of_a_row = spec.experts_of_a_row
        self.widest = max(own.down.inputs for own in experts)
        self.structure = Experts(
            gate_up=self._gate_up,
            down=self._down,
            choice_bias=None if choice_bias_N is None else choice_bias_N.ctypes.data,
            scales=None if scales_N is None else scales_N.ctypes.data,
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
    def row_matrices(self) -> tuple[NativeMatrix, ...]:
        """Those that all rows of a step are multiplied with."""
        return (self.router,)

    @property
    def address(self) -> int:
        """Of its structure."""
        return ctypes.addressof(self.structure)


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeBranches:
    """A dense one beside experts, with the norms of these branches but for that which the dense one reads through."""

    dense: NativeFeedForward
    dense_after_C: NDArray[np.float32]
    router_norm_C: NDArray[np.float32]
    experts_before_C: NDArray[np.float32]
    experts: NativeExperts
    experts_after_C: NDArray[np.float32]

    @property
    def matrices(self) -> tuple[NativeMatrix, ...]:
        """All there are."""
        return *self.dense.matrices, *self.experts.matrices

    @property
    def row_matrices(self) -> tuple[NativeMatrix, ...]:
        """Those that all rows of a step are multiplied with."""
        return *self.dense.row_matrices, *self.experts.row_matrices


def experts_of(made: NativeFeedForward | NativeExperts | NativeBranches) -> NativeExperts | None:
    """Those that it has, if it has any."""
    if isinstance(made, NativeBranches):
        return made.experts
    return made if isinstance(made, NativeExperts) else None


def gate_kind(spec: FeedForwardSpec) -> GateKind:
    """What the kernels call its activation."""
    return _GATES[spec.activation]


def load_experts(
    spec: FeedForwardSpec,
    slices: ExpertsSlices,
    load: Load,
    load_router: Load,
    load_vector: Callable[[Slices], NDArray[np.float32] | None],
) -> NativeExperts | NativeBranches:
    """Those of these slices."""
    assert spec.experts is not None, "it has slices of experts"
    experts = [NativeFeedForward.of(own, load) for own in slices.experts]
    router, bias_N = load_router(slices.router, slices.router_bias), load_vector(slices.choice_bias)
    scales_N, norms = load_vector(slices.expert_scales), slices.norms
    if norms is None:
        return NativeExperts(spec, router, bias_N, scales_N, experts)
    chosen = replace(spec, experts=replace(spec.experts, shared_intermediate=0, apart=False))
    of_router_C, before_C, after_C, dense_after_C = map(
        load_vector, (norms.router, norms.before, norms.after, norms.shared_after)
    )
    assert of_router_C is not None
    assert before_C is not None
    assert after_C is not None
    assert dense_after_C is not None
    return NativeBranches(
        dense=experts[-1],
        dense_after_C=dense_after_C,
        router_norm_C=of_router_C / np.float32(math.sqrt(len(of_router_C))),
        experts_before_C=before_C,
        experts=NativeExperts(chosen, router, bias_N, scales_N, experts[:-1]),
        experts_after_C=after_C,
    )
