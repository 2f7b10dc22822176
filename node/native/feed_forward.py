"""The weights of a dense feed-forward, or of one expert, as the kernels have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from layerline.models.feed_forward_spec import FeedForwardSpec
from node.kernels.structures import GateKind
from node.native.matrices import NativeMatrix, Room
from node.slices.feed_forward_slices import FeedForwardSlices, Slices

_GATES = {"silu": GateKind.SILU, "gelu_tanh": GateKind.GELU_TANH, "clamped_swiglu": GateKind.CLAMPED_SWIGLU}
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

    def moved(self, room: Room) -> NativeFeedForward:
        """The same, its panels in that room."""
        return NativeFeedForward(gate_up=self.gate_up.moved(room), down=self.down.moved(room))


def gate_kind(spec: FeedForwardSpec) -> GateKind:
    """What the kernels call its activation."""
    return _GATES[spec.activation]
