"""Calls the kernels. Knows no models: panels, rows and operations are all there is."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np
from numpy.typing import NDArray

from node.kernels.library import Library
from node.kernels.structures import TILE, Operation, Step, Work, format_number

ALIGNMENT = 64


class Engine:
    """Threads that compute with one instruction set. They end when nobody holds it any more."""

    def __init__(self, library: Library, instruction_set: str, threads: int, scratch_bytes: int = 0) -> None:
        """Each thread has `scratch_bytes`, or what products take if that is more. MemoryError if there is no room."""
        assert threads > 0
        self.instruction_set = instruction_set
        self._calls = library.calls
        self._engine = self._calls.layerline_engine(instruction_set.encode(), threads, scratch_bytes)
        if not self._engine:
            raise MemoryError(f"no kernels of {instruction_set} with {threads} threads")
        weakref.finalize(self, self._calls.layerline_end, self._engine)

    def prepared_bytes(self, rows: int, columns: int, *, digits: int, floats: bool) -> int:
        """Bytes that rows take before they are multiplied: as integers of so many digits, or as floats."""
        size: int = self._calls.layerline_prepared_bytes(self._engine, floats, digits, rows, columns)
        return size

    def run(self, operations: ctypes.Array[Operation], count: int, work: Work, step: Step) -> None:
        """Runs the first `count` operations."""
        if self._calls.layerline_run(self._engine, operations, count, ctypes.byref(work), ctypes.byref(step)):
            raise MemoryError("no memory for a step")


def pack(
    library: Library, storage: str, stored: NDArray[np.uint8], columns: int, first_row: int, panels: NDArray[np.uint8]
) -> None:
    """Puts stored rows [rows, bytes] into the panels of a matrix, the first as its row `first_row`."""
    assert stored.ndim == 2
    assert stored.strides[1] == 1
    number = format_number(storage)
    assert stored.shape[1] == library.calls.layerline_row_bytes(number, columns), "whole blocks of a row"
    rows, last_panel = len(stored), (first_row + len(stored) - 1) // TILE
    assert (last_panel + 1) * library.panel_bytes(storage, columns) <= panels.nbytes, "rows beyond the matrix"
    library.calls.layerline_pack(
        number, stored.ctypes.data, stored.strides[0], rows, columns, first_row, panels.ctypes.data
    )


def aligned_bytes(size: int) -> NDArray[np.uint8]:
    """Bytes that begin where vectors like it, all zero."""
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    skipped = -memory.ctypes.data % ALIGNMENT
    return memory[skipped : skipped + size]


def aligned_rows(rows: int, columns: int) -> NDArray[np.float32]:
    """Float32 [rows, columns] that begin where vectors like it, all zero."""
    return aligned_bytes(4 * rows * columns).view(np.float32).reshape(rows, columns)
