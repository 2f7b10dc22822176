"""MXFP4 as gpt-oss stores it: of every 32 columns 16 bytes of two neighbours' codes each, and an exponent apart.

It is read as GGUF's type of this name, where a byte has the codes of columns that are 16 apart.

Source: OCP Microscaling Formats (2023), and `mxfp4.py` of transformers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from layerline.models.grouped import CELL_COLUMNS
from layerline.models.quantised.config import Quantisation
from layerline.models.quantised.recipe import Matrix, PieceBytes, PieceTensors, Recipe, codes_of_bytes

HALF = CELL_COLUMNS // 2
MOST_EXPONENT = 252  # with which the largest number, 6, is one in float32


def _described(pieces: PieceTensors, _: Quantisation) -> tuple[str, tuple[int, ...]]:
    """One matrix, or those of all experts of a layer."""
    for role in ("blocks", "scales"):
        pieces.storage(role, ("U8",))
    *rows, groups = pieces.sides("scales", 2, 3)
    pieces.check_shape("blocks", (*rows, groups, HALF))
    return "MXFP4", (*rows, groups * CELL_COLUMNS)


def _opened(pieces: PieceBytes) -> Matrix:
    blocks, exponents = pieces.bits("blocks"), pieces.bits("scales")
    if exponents.max() > MOST_EXPONENT:
        raise pieces.corrupt("scales", "has an exponent with which no number is finite")

    def rows(wanted: range) -> NDArray[np.uint8]:
        own = slice(wanted.start, wanted.stop)
        codes = codes_of_bytes(blocks[own], bits=4)
        packed = codes[..., :HALF] | codes[..., HALF:] << 4
        return np.concatenate([exponents[own, :, None], packed], axis=2).reshape(len(wanted), -1)

    return Matrix(rows)


RECIPE = Recipe(
    needed={"blocks": ("_blocks",), "scales": ("_scales",)},
    optional={},
    described=_described,
    opened=_opened,
)
