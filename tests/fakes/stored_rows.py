"""Random rows in every stored form."""

from __future__ import annotations

from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from layerline.models.grouped import GroupedForm, grouped_form
from layerline.models.grouped_rows import not_numbers, rows_of

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
    "IQ1_S": [(0, 5e-3)],
    "IQ2_XXS": [(0, 1e-3)],
    "IQ3_XXS": [(0, 4e-4)],
    "IQ3_S": [(0, 4e-4)],
    "TQ1_0": [(52, 5e-2)],
    "TQ2_0": [(64, 5e-2)],
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
