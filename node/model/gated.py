"""The gated matrices of a feed-forward: how gate and up are held, and how their products are put together.

Owns the choice between two forms, as `linear` does for a single matrix:

* joined, for every device and dtype: gate and up below each other in one `Linear`, so that few rows cost one product;
* packed, where `linear` packs: a matrix each, oneDNN gating the products while they are in registers. With
  AMX the feed-forward of 256 and 512 rows takes 0.8 of the time, and rounds once less.

Source: Shazeer, GLU Variants Improve Transformer (2020).

Shapes: T rows, I inputs, F feed-forward, E = 2F.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from torch.nn import functional

from node.model.linear import Linear, PackedLinear, can_pack, owned_linear


class Gated(Protocol):
    """Two matrices of the same size, applied to rows."""

    def __call__(self, x_TI: Tensor) -> Tensor:
        """silu(x_TI W_gateᵀ) * (x_TI W_upᵀ), [T, F] in the dtype of x_TI."""


class JoinedGated:
    """Both as one matrix."""

    def __init__(self, gate_up: Linear) -> None:
        self._gate_up = gate_up

    def __call__(self, x_TI: Tensor) -> Tensor:
        gate_TF, up_TF = self._gate_up(x_TI).chunk(2, dim=1)
        return functional.silu(gate_TF).mul_(up_TF)


class PackedGated:
    """Two bfloat16 matrices in oneDNN's own blocked order."""

    def __init__(self, gate: PackedLinear, up: PackedLinear) -> None:
        self._gate = gate
        self._up = up

    def __call__(self, x_TI: Tensor) -> Tensor:
        return self._up.times(x_TI, self._gate.silu(x_TI))


def owned_gated(gate_up_EI: Tensor) -> Gated:
    """The fastest form of gate and up, given below each other, that nothing else uses."""
    if not can_pack(gate_up_EI):
        return JoinedGated(owned_linear(gate_up_EI))
    gate_FI, up_FI = gate_up_EI.chunk(2)
    return PackedGated(PackedLinear.packing(gate_FI), PackedLinear.packing(up_FI))
