"""How tensors are stored: which types layerline reads, how many bytes they take, and how they become float32.

Sizes and dequantisation are the `gguf` library's, but those of forms with scales of groups (`grouped`). Knows
nothing of files, names or models.
"""

from __future__ import annotations

import math

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from layerline.models.grouped import grouped_form
from layerline.models.grouped_rows import numbers_of, part_of

FLOAT_STORAGES = frozenset(
    {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}
    | {"IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS"}
    | {"TQ1_0", "TQ2_0", "MXFP4"}
)


def stored_bytes(storage: str, shape: tuple[int, ...]) -> int:
    """Bytes that a tensor of `shape` takes; ValueError if its rows are not whole blocks of `storage`."""
    if (form := grouped_form(storage)) is not None:
        return math.prod(shape[:-1]) * form.row_bytes(shape[-1])
    block_numbers, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[storage]]
    columns = shape[-1]
    if columns % block_numbers:
        raise ValueError(f"rows of {columns} numbers are not whole {storage} blocks of {block_numbers}")
    return math.prod(shape) // block_numbers * block_bytes


def to_float32(storage: str, stored: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The numbers in `stored` (bytes, 1-D) as a fresh, writable, C-contiguous float32 array of `shape`."""
    if storage == "F32":
        return stored.view("<f4").astype(np.float32, copy=True).reshape(shape)
    if storage == "F16":
        return stored.view("<f2").astype(np.float32).reshape(shape)
    if storage == "BF16":
        return (stored.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    rows = stored.reshape(math.prod(shape[:-1]), -1)
    numbers: NDArray[np.float32] = dequantize(rows, GGMLQuantizationType[storage])
    return numbers.reshape(shape)


def columns_of_blocks(storage: str, rows: NDArray[np.uint8], columns: range) -> tuple[NDArray[np.uint8], range]:
    """A copy of the blocks of stored rows [rows, bytes] that hold `columns`, and which of their numbers those are."""
    if (form := grouped_form(storage)) is not None:
        return part_of(form, rows, columns)
    block_numbers, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[storage]]
    first, end = columns.start // block_numbers, -(-columns.stop // block_numbers)
    skipped = first * block_numbers
    return rows[:, first * block_bytes : end * block_bytes].copy(), range(
        columns.start - skipped, columns.stop - skipped
    )


def columns_to_float32(storage: str, rows: NDArray[np.uint8], columns: range) -> NDArray[np.float32]:
    """Those columns of stored rows [rows, bytes] as a fresh, writable, C-contiguous float32 array [rows, columns]."""
    if (form := grouped_form(storage)) is not None:
        return np.ascontiguousarray(numbers_of(form, rows)[:, columns.start : columns.stop])
    block_numbers, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[storage]]
    numbers = to_float32(storage, rows.reshape(-1), (len(rows), rows.shape[1] // block_bytes * block_numbers))
    return np.ascontiguousarray(numbers[:, columns.start : columns.stop])
