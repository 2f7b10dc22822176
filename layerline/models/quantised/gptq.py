"""GPTQ: codes of four or eight neighbouring inputs in a word of 32 bits, the words of all outputs side by side.

What stands for zero is stored less 1, in as many bits, so that 0 becomes the largest; only the second version of the
format stores it as it is. `g_idx` names each input's group.

Source: `qlinear_cuda.py` of AutoGPTQ and `torch.py` of GPTQModel.
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


def _described(pieces: PieceTensors, quantisation: Quantisation) -> tuple[str, tuple[int, int]]:
    in_word = 32 // quantisation.bits
    words, rows = pieces.sides("qweight", 2)
    columns = words * in_word
    form = pieces.form(f"INT{quantisation.bits}", quantisation, columns, pieces.storage("scales", SCALES))
    groups = form.groups(columns)
    if form.ordered and "g_idx" not in pieces:
        raise pieces.missing("qweight", pieces.piece_name("g_idx"))
    for role in ("qweight", "qzeros", "g_idx"):
        if role in pieces:
            pieces.storage(role, INTEGERS)
    pieces.check_shape("scales", (groups, rows))
    pieces.check_shape("qzeros", (groups, rows // in_word))
    pieces.check_shape("g_idx", (columns,))
    return form.storage, (rows, columns)


def _opened(pieces: PieceBytes) -> Matrix:
    bits, first_version = pieces.form.bits, pieces.recipe == "gptq"
    words = pieces.bytes_of_words("qweight")
    zeros = codes_of_bytes(pieces.bytes_of_words("qzeros").reshape(pieces.groups, -1), bits)
    if first_version:
        zeros = zeros + np.uint8(1) & np.uint8((1 << bits) - 1)

    def codes(wanted: range) -> NDArray[np.uint8]:
        own = words[:, wanted.start : wanted.stop].transpose(1, 0, 2)
        return codes_of_bytes(own.reshape(len(wanted), -1), bits)

    order = pieces.order("g_idx") if "g_idx" in pieces else None
    return grouped_matrix(pieces, codes, pieces.scales("scales").T, zeros.T, order)


RECIPE = Recipe(
    needed={role: (f".{role}",) for role in ("qweight", "qzeros", "scales")},
    optional={"g_idx": (".g_idx",)},
    described=_described,
    opened=_opened,
)
