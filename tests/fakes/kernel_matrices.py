"""Random matrices in every stored form, and their products by the kernels of one instruction set."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from layerline.models.grouped import GroupedForm, grouped_form
from layerline.models.grouped_rows import not_numbers, rows_of
from layerline.models.held import matrix_bytes
from layerline.models.storage import columns_to_float32, stored_bytes
from node.kernels.engine import Engine, aligned_bytes, pack
from node.kernels.library import kernels_here, library
from node.kernels.structures import Operation, OperationKind, Rows, Step, Work
from node.native.matrices import NativeMatrix, Panels
from node.native.one_product import OneProduct

GROUPED_STORAGES = (
    *("INT4_128_F16", "INT4_32_BF16", "INT4_ROW_F32", "INT4_96_F16", "INT8_64_BF16", "INT8_ROW_F16", "INT8_128_F32"),
    *("F8_E4M3_128_F32", "F8_E4M3_ROW_BF16", "F8_E4M3_96_F16", "F8_E5M2_64_F32"),
)  # of forms with scales of groups
SETS = library().instruction_sets if kernels_here() else ()
SCALES = {
    "Q4_0": [(0, 1e-2)],
    "Q4_1": [(0, 1e-2), (2, -8e-2)],
    "Q5_0": [(0, 1e-2)],
    "Q5_1": [(0, 1e-2), (2, -8e-2)],
    "Q8_0": [(0, 1e-3)],
    "Q2_K": [(80, 3e-3), (82, 2e-3)],
    "Q3_K": [(108, 1e-3)],
    "Q4_K": [(0, 3e-4), (2, 2e-3)],
    "Q5_K": [(0, 3e-4), (2, 2e-3)],
    "Q6_K": [(208, 2e-4)],
    "IQ4_NL": [(0, 1e-3)],
    "IQ4_XS": [(0, 1e-5)],
}  # of a block: where its 16-bit numbers are, and about how large they may be


def stored_rows(storage: str, rows: int, columns: int, seed: int = 0) -> NDArray[np.uint8]:
    """Rows [rows, bytes] of random blocks with scales of a sane size."""
    random = np.random.default_rng(seed)
    if storage in ("F32", "F16"):
        numbers = random.standard_normal((rows, columns))
        return numbers.astype(np.float32 if storage == "F32" else np.float16).view(np.uint8)
    if storage == "BF16":
        bits = random.standard_normal((rows, columns)).astype(np.float32).view(np.uint32) >> 16
        return bits.astype(np.uint16).view(np.uint8)
    if (form := grouped_form(storage)) is not None:
        return _grouped_rows(form, random, rows, columns)
    block_numbers, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[storage]]
    blocks = random.integers(0, 256, (rows * columns // block_numbers, block_bytes), dtype=np.uint8)
    for offset, size in SCALES.get(storage, []):
        scales = (random.uniform(0.5, 1.5, len(blocks)) * size).astype(np.float16)
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    if storage == "MXFP4":
        blocks[:, 0] = random.integers(118, 124, len(blocks))
    return blocks.reshape(rows, -1)


def _grouped_rows(form: GroupedForm, random: np.random.Generator, rows: int, columns: int) -> NDArray[np.uint8]:
    """With zeros of any kind, unless scales of 32 bits make their product with one inexact."""
    codes = random.integers(0, 1 << form.bits, (rows, columns), dtype=np.uint8)
    if not form.has_zeros:
        codes = np.where(not_numbers(form.codes)[codes], np.uint8(1), codes)
    sizes = {"INT4": 1e-2, "INT8": 1e-3, "F8_E4M3": 1e-3, "F8_E5M2": 1e-5}
    numbers = (random.uniform(0.5, 1.5, (rows, form.groups(columns))) * sizes[form.codes]).astype(np.float32)
    scales: dict[str, NDArray[Any]] = {
        "F32": numbers,
        "F16": numbers.astype(np.float16),
        "BF16": numbers.view(np.uint16)[:, 1::2],
    }
    zeros = random.integers(0, 1 << form.bits, numbers.shape, dtype=np.uint8)
    return rows_of(form, codes, scales[form.scale], None if form.scale == "F32" else zeros)


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
    step = Step(rows=matrix.outputs, input=np.arange(matrix.outputs, dtype=np.int32).tobytes())
    engine(instruction_set).run((Operation * 1)(operation), 1, Work(buffers=buffers), step)
    return out


@functools.cache
def engine(instruction_set: str, threads: int = 1, scratch_bytes: int = 0) -> Engine:
    """One engine of each kind for all tests of a process."""
    return Engine(library(), instruction_set, threads, scratch_bytes)
