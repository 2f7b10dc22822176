"""Random rows in every stored form."""

from __future__ import annotations

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

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
    block_numbers, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[storage]]
    blocks = random.integers(0, 256, (rows * columns // block_numbers, block_bytes), dtype=np.uint8)
    for offset, size in SCALES.get(storage, []):
        scales = (random.uniform(0.5, 1.5, len(blocks)) * size).astype(np.float16)
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    if storage == "MXFP4":
        blocks[:, 0] = random.integers(118, 124, len(blocks))
    return blocks.reshape(rows, -1)
