"""AWQ for matrix products ("gemm"): codes of eight neighbouring outputs in a word of 32 bits, first those of even ones.

Source: `linear/gemm.py` and `utils/packing_utils.py` of AutoAWQ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from layerline.models.quantised.config import Quantisation
from layerline.models.quantised.recipe import (
    INTEGERS,
    SCALES,
    Matrix,
    PieceBytes,
    PieceTensors,
    Recipe,
    codes_of_bytes,
    grouped_matrix,
)

IN_WORD = 8
PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # of each output in its word, in units of four bits


def _described(pieces: PieceTensors, quantisation: Quantisation) -> tuple[str, tuple[int, int]]:
    columns, words = pieces.sides("qweight", 2)
    rows = words * IN_WORD
    form = pieces.form("INT4", quantisation, columns, pieces.storage("scales", SCALES))
    groups = form.groups(columns)
    for role in ("qweight", "qzeros"):
        pieces.storage(role, INTEGERS)
    pieces.check_shape("scales", (groups, rows))
    pieces.check_shape("qzeros", (groups, words))
    return form.storage, (rows, columns)


def _opened(pieces: PieceBytes) -> Matrix:
    words = pieces.bytes_of_words("qweight")

    def codes(wanted: range) -> NDArray[np.uint8]:
        first, end = wanted.start // IN_WORD, -(-wanted.stop // IN_WORD)
        own = _outputs(words[:, first:end])
        return np.ascontiguousarray(own[:, wanted.start - first * IN_WORD :][:, : len(wanted)].T)

    return grouped_matrix(pieces, codes, pieces.scales("scales").T, _outputs(pieces.bytes_of_words("qzeros")).T)


def _outputs(words: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The codes [..., outputs] of words as bytes [..., words, 4]."""
    return codes_of_bytes(words, 4)[..., PLACES].reshape(len(words), -1)


RECIPE = Recipe(
    needed={role: (f".{role}",) for role in ("qweight", "qzeros", "scales")},
    optional={},
    described=_described,
    opened=_opened,
)
