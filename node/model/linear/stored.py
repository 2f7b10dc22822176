"""Matrices that are held as they are stored, and unpacked as they are multiplied.

Many rows are multiplied with one tile after the other that is unpacked in memory; few rows, where the device has
kernels for it, with what these unpack in registers. What is unpacked is rounded to the dtype of the rows, so that the
product is that of a matrix held in that dtype.

Shapes: T rows, I inputs, O outputs, C hidden, R rows of a matrix, B bytes of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from layerline.models.workspace import TILE_NUMBERS
from node.model.stored.forms import FORMS
from node.model.stored.numbers import numbers_of
from node.model.stored.products import MOST_ROWS, BlockKernels

Unpacked = Callable[[str, Tensor, torch.dtype], Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRows:
    """Rows of `columns` numbers in one storage; `order_I` tells which input each column belongs to, None: its own."""

    storage: str
    stored_RB: Tensor
    columns: int
    order_I: Tensor | None = None

    @property
    def tiles(self) -> Iterator[Tensor]:
        """The stored rows, so many at a time as may be unpacked."""
        yield from torch.split(self.stored_RB, max(1, TILE_NUMBERS // self.columns))


class StoredLinear:
    """Stored rows of a matrix, one below the other; `kernels` are for those that are in blocks."""

    def __init__(
        self, parts: Sequence[StoredRows], bias_O: Tensor | None = None, kernels: BlockKernels | None = None
    ) -> None:
        self._parts = parts
        self._bias_O = bias_O
        self._kernels = kernels
        self._outputs = sum(len(part.stored_RB) for part in parts)

    def __call__(self, x_TI: Tensor) -> Tensor:
        product_TO = x_TI.new_empty(len(x_TI), self._outputs)
        first = 0
        for part in self._parts:
            rows = len(part.stored_RB)
            bias_R = None if self._bias_O is None else self._bias_O.narrow(0, first, rows)
            out_TR = product_TO.narrow(1, first, rows)
            kernels = self._kernels if part.storage in FORMS else None
            if kernels is not None and len(x_TI) <= MOST_ROWS:
                kernels.multiply_few(part.storage, x_TI, part.stored_RB, bias_R, out_TR)
            else:
                # Inputs are put in order rather than what is unpacked: there are fewer of them.
                own_TI = x_TI if part.order_I is None else x_TI.index_select(1, part.order_I)
                _multiply_tiles(part, own_TI, bias_R, out_TR, numbers_of if kernels is None else kernels.unpacked)
            first += rows
        return product_TO


def _multiply_tiles(part: StoredRows, x_TI: Tensor, bias_R: Tensor | None, out_TR: Tensor, unpacked: Unpacked) -> None:
    first = 0
    for tile_RB in part.tiles:
        rows = len(tile_RB)
        bias = None if bias_R is None else bias_R.narrow(0, first, rows)
        weight_RI = unpacked(part.storage, tile_RB, x_TI.dtype)
        out_TR.narrow(1, first, rows).copy_(functional.linear(x_TI, weight_RI, bias))
        first += rows


class StoredEmbedding:
    """Stored rows, of which those that are looked up are unpacked."""

    def __init__(self, rows: StoredRows, dtype: torch.dtype) -> None:
        self._rows = rows
        self._dtype = dtype

    def __call__(self, ids_T: Tensor) -> Tensor:
        numbers_TC = numbers_of(self._rows.storage, self._rows.stored_RB.index_select(0, ids_T), self._dtype)
        if self._rows.order_I is None:
            return numbers_TC
        return torch.empty_like(numbers_TC).index_copy_(1, self._rows.order_I, numbers_TC)
