"""Rows of a matrix in the storage that they are to be held in, made of those that were read."""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from numpy.typing import NDArray

from layerline.models.held import EIGHT_BITS, EIGHT_BITS_FORM, FLOATS
from layerline.models.read import StoredBlock
from layerline.models.storage import columns_of_blocks
from node.slices.eight_bits import in_eight_bits


def in_storage(block: StoredBlock, storage: str) -> NDArray[np.uint8]:
    """The rows [rows, bytes] of a block in the storage that they are to be held in."""
    if block.storage == storage:
        if storage not in FLOATS or block.columns is None:
            return block.stored
        size, wanted = FLOATS[storage], block.columns
        return np.ascontiguousarray(block.stored[:, size * wanted.start : size * wanted.stop])
    if block.storage in EIGHT_BITS and storage == EIGHT_BITS_FORM:
        return _of_eight_bits(block)
    numbers = block.to_float32()
    if storage == "F32":
        return numbers.view(np.uint8)
    if storage == "BF16":
        return rounded_to_bfloat16(numbers).view(np.uint8)
    made: NDArray[np.uint8] = quantize(numbers, GGMLQuantizationType[storage])
    return made


def _of_eight_bits(block: StoredBlock) -> NDArray[np.uint8]:
    """The columns of a block that were asked for, which are whole groups."""
    assert block.columns is not None, "a vector is held in float32"
    rows, _ = columns_of_blocks(EIGHT_BITS_FORM, in_eight_bits(block.storage, block.stored), block.columns)
    return rows


def rounded_to_bfloat16(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16 numbers, of equals the even ones."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    rounded = ((bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(numbers), np.uint16(0x7FC0), rounded)
