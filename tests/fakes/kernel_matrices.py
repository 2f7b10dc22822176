"""Random matrices in every stored form, and their products by the kernels of one instruction set."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from layerline.models.held import matrix_bytes
from layerline.models.storage import to_float32
from node.kernels.engine import Engine, aligned_bytes, pack
from node.kernels.library import kernels_here, library
from node.native.matrices import NativeMatrix, Panels
from node.native.one_product import OneProduct
from tests.fakes.stored_rows import stored_rows

SETS = library().instruction_sets if kernels_here() else ()


class KernelMatrix:
    """A random matrix in one storage, in panels, and its numbers [outputs, inputs] as `gguf` has them."""

    def __init__(self, storage: str, outputs: int, inputs: int, seed: int = 0) -> None:
        stored = stored_rows(storage, outputs, inputs, seed)
        self.outputs, self.inputs = outputs, inputs
        self.numbers = to_float32(storage, stored.reshape(-1), (outputs, inputs))
        memory = aligned_bytes(matrix_bytes(storage, outputs, inputs))
        pack(library(), storage, stored, inputs, 0, memory)
        self.matrix = NativeMatrix([Panels(storage=storage, rows=outputs, columns=inputs, memory=memory)])

    def unpacked(self, instruction_set: str) -> NDArray[np.float32]:
        """All rows as floats."""
        out = np.empty((self.outputs, self.inputs), np.float32)
        self.matrix.look_up(engine(instruction_set), np.arange(self.outputs, dtype=np.int32), out)
        return out

    def product(self, rows_TI: NDArray[np.float32], digits: int, instruction_set: str) -> NDArray[np.float32]:
        """Rows times the matrix [rows, outputs]."""
        return OneProduct(rows_TI, self.matrix, engine(instruction_set), digits).multiply().copy()


@functools.cache
def engine(instruction_set: str, threads: int = 1, scratch_bytes: int = 0) -> Engine:
    """One engine of each kind for all tests of a process."""
    return Engine(library(), instruction_set, threads, scratch_bytes)
