"""Rows of a matrix in the storage that they are to be held in, made of those that were read."""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from numpy.typing import NDArray

from layerline.models.held import FLOATS
from layerline.models.read import StoredBlock


def in_storage(block: StoredBlock, storage: str) -> NDArray[np.uint8]:
    """The rows [rows, bytes] of a block in the storage that they are to be held in."""
    if block.storage == storage:
        if storage not in FLOATS or block.columns is None:
            return block.stored
        size, wanted = FLOATS[storage], block.columns
        return np.ascontiguousarray(block.stored[:, size * wanted.start : size * wanted.stop])
    numbers = block.to_float32()
    if storage == "F32":
        return numbers.view(np.uint8)
    if storage == "BF16":
        return rounded_to_bfloat16(numbers).view(np.uint8)
    made: NDArray[np.uint8] = quantize(numbers, GGMLQuantizationType[storage])
    return made


def rounded_to_bfloat16(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16 numbers, of equals the even ones."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    rounded = ((bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(numbers), np.uint16(0x7FC0), rounded)
