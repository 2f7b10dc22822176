"""Random matrices in every stored form, and their products by the kernels of one instruction set."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
from numpy.typing import NDArray

from layerline.models.held import matrix_bytes
from layerline.models.storage import columns_to_float32, stored_bytes
from node.kernels.engine import Engine, aligned_bytes, pack
from node.kernels.library import kernels_here, library
from node.kernels.structures import Operation, OperationKind, Rows, Step, Work
from node.native.matrices import NativeMatrix, Panels
from node.native.one_product import OneProduct
from tests.fakes.stored_rows import stored_rows

GROUPED_STORAGES = (
    *("INT4_128_F16", "INT4_32_BF16", "INT4_ROW_F32", "INT4_96_F16", "INT8_64_BF16", "INT8_ROW_F16", "INT8_128_F32"),
    *("F8_E4M3_128_F32", "F8_E4M3_ROW_BF16", "F8_E4M3_96_F16", "F8_E5M2_64_F32"),
)  # of forms with scales of groups
SETS = library().instruction_sets if kernels_here() else ()


class KernelMatrix:
    """A random matrix in one storage, in panels, and its numbers [outputs, inputs] as `gguf` has them.

    In `order` column i of what is stored is column `order[i]` of the matrix.
    """

    def __init__(
        self, storage: str, outputs: int, inputs: int, seed: int = 0, order: NDArray[np.int32] | None = None
    ) -> None:
        stored = stored_rows(storage, outputs, inputs, seed)
        self.outputs, self.inputs = outputs, inputs
        assert stored.nbytes == stored_bytes(storage, (outputs, inputs))
        self.numbers = columns_to_float32(storage, stored, range(inputs))
        if order is not None:
            self.numbers = self.numbers[:, np.argsort(order)]
        self.matrix = packed(storage, stored, inputs, order)

    def unpacked(self, instruction_set: str) -> NDArray[np.float32]:
        """All rows as floats."""
        return unpacked(self.matrix, instruction_set)

    def product(self, rows_TI: NDArray[np.float32], digits: int, instruction_set: str) -> NDArray[np.float32]:
        """Rows times the matrix [rows, outputs]."""
        return OneProduct(rows_TI, self.matrix, engine(instruction_set), digits).multiply().copy()


def packed(
    storage: str, stored: NDArray[np.uint8], inputs: int, order: NDArray[np.int32] | None = None
) -> NativeMatrix:
    """Stored rows [rows, bytes] in panels, whose columns are in `order`."""
    memory = aligned_bytes(matrix_bytes(storage, len(stored), inputs))
    pack(library(), storage, stored, inputs, 0, memory)
    return NativeMatrix([Panels(storage=storage, rows=len(stored), columns=inputs, memory=memory, order_I=order)])


def unpacked(matrix: NativeMatrix, instruction_set: str) -> NDArray[np.float32]:
    """All rows of a matrix of one part, as floats."""
    out = np.full((matrix.outputs, matrix.inputs), np.nan, np.float32)
    buffers = (Rows * 1)(Rows(data=out.ctypes.data, stride=matrix.inputs))
    operation = Operation(kind=OperationKind.EMBED, target=0, matrix=ctypes.pointer(matrix.structure))
    step = Step(rows=matrix.outputs, ids=np.arange(matrix.outputs, dtype=np.int32).tobytes())
    engine(instruction_set).run((Operation * 1)(operation), 1, Work(buffers=buffers), step)
    return out


@functools.cache
def engine(instruction_set: str, threads: int = 1, scratch_bytes: int = 0) -> Engine:
    """One engine of each kind for all tests of a process."""
    return Engine(library(), instruction_set, threads, scratch_bytes)
