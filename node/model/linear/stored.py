"""Matrices that are held as they are stored, and unpacked as they are multiplied: tile by tile, whatever the device.

What is unpacked is rounded to the dtype of the rows, so that the product is that of a matrix held in that dtype.

Shapes: T rows, I inputs, O outputs, C hidden, R rows of a matrix, B bytes of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from layerline.models.sizes import TILE_NUMBERS
from node.model.stored.numbers import numbers_of


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRows:
    """Rows of `columns` numbers in one storage."""

    storage: str
    stored_RB: Tensor
    columns: int

    @property
    def tiles(self) -> Iterator[Tensor]:
        """The stored rows, so many at a time as may be unpacked."""
        yield from torch.split(self.stored_RB, max(1, TILE_NUMBERS // self.columns))


class StoredLinear:
    """Stored rows of a matrix, one below the other."""

    def __init__(self, parts: Sequence[StoredRows], bias_O: Tensor | None = None) -> None:
        self._parts = parts
        self._bias_O = bias_O

    def __call__(self, x_TI: Tensor) -> Tensor:
        return torch.cat(list(self._products(x_TI)), dim=1)

    def _products(self, x_TI: Tensor) -> Iterator[Tensor]:
        first = 0
        for part in self._parts:
            for tile_RB in part.tiles:
                bias_R = None if self._bias_O is None else self._bias_O.narrow(0, first, len(tile_RB))
                yield functional.linear(x_TI, numbers_of(part.storage, tile_RB, x_TI.dtype), bias_R)
                first += len(tile_RB)


class StoredEmbedding:
    """Stored rows, of which those that are looked up are unpacked."""

    def __init__(self, rows: StoredRows, dtype: torch.dtype) -> None:
        self._rows = rows
        self._dtype = dtype

    def __call__(self, ids_T: Tensor) -> Tensor:
        return numbers_of(self._rows.storage, self._rows.stored_RB.index_select(0, ids_T), self._dtype)
