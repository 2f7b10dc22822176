"""Matrices in panels, and vectors: made of slices of stored tensors, block by block as they are read.

Shapes: I inputs, O outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from layerline.models.held import PANEL_ROWS, held_storage, matrix_bytes
from node.kernels.engine import ALIGNMENT, aligned_bytes, pack
from node.kernels.library import Library
from node.kernels.structures import Matrix, Segment, format_number
from node.slices.stored_rows import in_storage
from node.slices.tensor_source import TensorSlice, TensorSource


@dataclass(frozen=True, kw_only=True, slots=True)
class Panels:
    """Rows of a matrix in one storage, 16 side by side; `order_I` tells which input each column belongs to."""

    storage: str
    rows: int
    columns: int
    memory: NDArray[np.uint8]
    order_I: NDArray[np.int32] | None = None

    def moved(self, room: Room) -> Panels:
        """The same in that room."""
        memory = room.take(self.memory.nbytes)
        memory[:] = self.memory
        return replace(self, memory=memory)

    def segment(self, first_output: int) -> Segment:
        """These rows as some of a matrix."""
        return Segment(
            panels=self.memory.ctypes.data,
            format=format_number(self.storage),
            rows=self.rows,
            first_output=first_output,
            order=None if self.order_I is None else self.order_I.ctypes.data,
        )


class Room:
    """Memory for several matrices, which lie side by side."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory = memory
        self._taken = 0

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """The next bytes of it, where vectors like them to begin."""
        first = self._taken
        self._taken += in_room(nbytes)
        return self._memory[first : first + nbytes]


def in_room(nbytes: int) -> int:
    """What so many bytes take of a room."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class NativeMatrix:
    """Panels one below the other, and perhaps a bias; `structure` points into what is held here."""

    def __init__(self, parts: Sequence[Panels], bias_O: NDArray[np.float32] | None = None) -> None:
        self.parts = _with_shared_orders(parts)
        self.inputs = parts[0].columns
        self.outputs = sum(part.rows for part in parts)
        self.bias_O = bias_O
        firsts = np.cumsum([0, *(part.rows for part in parts)])
        self._segments = (Segment * len(parts))(
            *(part.segment(int(first)) for part, first in zip(self.parts, firsts[:-1], strict=True))
        )
        self.structure = Matrix(
            segments=ctypes.cast(self._segments, ctypes.POINTER(Segment)),
            bias=None if bias_O is None else bias_O.ctypes.data,
            inputs=self.inputs,
            segment_count=len(parts),
        )

    def moved(self, room: Room) -> NativeMatrix:
        """The same, its panels in that room."""
        return NativeMatrix([part.moved(room) for part in self.parts], self.bias_O)

    @property
    def nbytes(self) -> int:
        """Bytes of its panels; orders are small beside them."""
        return sum(part.memory.nbytes for part in self.parts)


def load_matrix(
    library: Library,
    source: TensorSource,
    slices: Sequence[TensorSlice],
    weights: str,
    bias: Sequence[TensorSlice] = (),
    take: Callable[[int], NDArray[np.uint8]] = aligned_bytes,
) -> NativeMatrix:
    """The matrix of these slices, one below the other, and its bias if it has one; its memory is what `take` gives."""
    parts = [_panels(library, source, part, weights, take) for part in slices]
    return NativeMatrix(parts, load_vector(source, bias) if bias else None)


def load_vector(source: TensorSource, slices: Sequence[TensorSlice]) -> NDArray[np.float32]:
    """The slices of vectors one after the other, as float32."""
    parts = [block.to_float32() for part in slices for block in source.blocks(part)]
    vector = np.concatenate(parts)
    source.count(vector.nbytes)
    return vector


def held_bytes(source: TensorSource, wanted: TensorSlice, weights: str) -> int:
    """What the panels of a slice take."""
    return matrix_bytes(_storage(source, wanted, weights), *wanted.shape)


def _storage(source: TensorSource, wanted: TensorSlice, weights: str) -> str:
    assert wanted.columns is not None, "a vector has no panels"
    return held_storage(source.storage(wanted), weights, wanted.columns.part, wanted.columns.length)


def _panels(
    library: Library,
    source: TensorSource,
    wanted: TensorSlice,
    weights: str,
    take: Callable[[int], NDArray[np.uint8]],
) -> Panels:
    (rows, columns), storage = wanted.shape, _storage(source, wanted, weights)
    memory, order_I = take(matrix_bytes(storage, rows, columns)), None
    for block in source.blocks(wanted):
        if block.storage == storage:
            order_I = block.order
        stored = in_storage(block, storage)
        pack(library, storage, stored, columns, block.first_row, memory)
        source.count(len(stored) * library.panel_bytes(storage, columns) // PANEL_ROWS)
    source.count(memory.nbytes - rows * library.panel_bytes(storage, columns) // PANEL_ROWS)
    assert order_I is None or not storage.startswith("F8"), "the kernels take floats in the order of the inputs"
    return Panels(storage=storage, rows=rows, columns=columns, memory=memory, order_I=order_I)


def _with_shared_orders(parts: Sequence[Panels]) -> tuple[Panels, ...]:
    """The same parts, those with equal orders having one: rows are prepared once for neighbours with one order."""
    orders: list[NDArray[np.int32]] = []
    shared = []
    for part in parts:
        order_I = part.order_I
        if order_I is not None:
            known = next((each for each in orders if np.array_equal(each, order_I)), None)
            if known is None:
                orders.append(order_I)
            else:
                part = replace(part, order_I=known)
        shared.append(part)
    return tuple(shared)
