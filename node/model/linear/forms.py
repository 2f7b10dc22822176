"""The linear layer: the one seam behind which a matrix may be held in any form that multiplies rows.

Owns how a matrix is held and multiplied. Knows nothing of what it is for. Three forms so far:

* plain, for every device and dtype;
* packed, bfloat16 on CPUs where oneDNN has bfloat16 kernels: the matrix is reordered once into blocks, which
  makes few rows 1.4 times and a prompt 1.2 to 1.5 times as fast as plain (measured with AMX, one thread);
* weight first, for a bfloat16 matrix that must stay plain because it is also the embedding: with AMX, few rows
  are 1.5 times as fast if the matrix is the left operand, many rows slower.

Shapes: T rows, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Linear(Protocol):
    """A matrix, and perhaps a bias, applied to rows."""

    def __call__(self, x_TI: Tensor) -> Tensor:
        """x_TI W_OIᵀ + b_O in the dtype of x_TI."""


class PlainLinear:
    """A matrix as it is."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None = None) -> None:
        self._weight_OI = weight_OI
        self._bias_O = bias_O

    def __call__(self, x_TI: Tensor) -> Tensor:
        return functional.linear(x_TI, self._weight_OI, self._bias_O)


class PackedLinear:
    """A bfloat16 matrix in oneDNN's own blocked order."""

    def __init__(self, packed_OI: Tensor, bias_O: Tensor | None) -> None:
        self._packed_OI = packed_OI
        self._bias_O = bias_O
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    @classmethod
    def packing(cls, weight_OI: Tensor, bias_O: Tensor | None) -> PackedLinear:
        """Packs a copy of `weight_OI`; whoever holds the plain matrix should now let go of it."""
        return cls(torch.ops.mkldnn._reorder_linear_weight(weight_OI, None), bias_O)

    def __call__(self, x_TI: Tensor) -> Tensor:
        product_TO: Tensor = self._multiply(x_TI, self._packed_OI, self._bias_O, "none", [], "")
        return product_TO


class WeightFirstLinear:
    """A plain bfloat16 matrix for few rows, as the left operand."""

    def __init__(self, weight_OI: Tensor) -> None:
        self._weight_OI = weight_OI

    def __call__(self, x_TI: Tensor) -> Tensor:
        if x_TI.shape[0] == 1:
            return torch.mv(self._weight_OI, x_TI[0])[None]
        return torch.mm(self._weight_OI, x_TI.t()).t()


def owned_linear(weight_OI: Tensor, bias_O: Tensor | None = None) -> Linear:
    """The fastest form of a matrix that nothing else uses; the plain one is given up where it is packed."""
    if can_pack(weight_OI):
        return PackedLinear.packing(weight_OI, bias_O)
    return PlainLinear(weight_OI, bias_O)


def shared_linear(weight_OI: Tensor) -> Linear:
    """The fastest form for few rows of a matrix that is also used elsewhere and so must stay as it is."""
    if can_pack(weight_OI) and torch.cpu._is_amx_tile_supported():
        return WeightFirstLinear(weight_OI)
    return PlainLinear(weight_OI)


def can_pack(weight_OI: Tensor) -> bool:
    """Whether oneDNN can hold this matrix packed on this machine."""
    if weight_OI.device.type != "cpu" or weight_OI.dtype != torch.bfloat16:
        return False
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)  # torch may be built without oneDNN
    return supported is not None and bool(supported())
