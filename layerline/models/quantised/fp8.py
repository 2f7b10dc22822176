"""FP8: floating-point numbers of a byte, with a scale of each square block, of each row, or of the matrix.

It is called `weight_scale_inv` or `weight_scale`; a number is multiplied with either.

Source: `finegrained_fp8.py` of transformers, and the float-quantized format of compressed-tensors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from layerline.models.grouped_rows import not_numbers
from layerline.models.quantised.compressed import scale_shapes, scales_of_rows
from layerline.models.quantised.config import Quantisation
from layerline.models.quantised.recipe import SCALES, Matrix, PieceBytes, PieceTensors, Recipe, grouped_matrix

FLOATS = ("F8_E4M3", "F8_E5M2")
MOST_SCALE = 128.0  # with which kernels can multiply in one go; of weights, scales are far less


def _described(pieces: PieceTensors, quantisation: Quantisation) -> tuple[str, tuple[int, int]]:
    rows, columns = pieces.sides("weight", 2)
    scale = pieces.storage("scale", SCALES)
    form = pieces.form(pieces.storage("weight", FLOATS), quantisation, columns, scale)
    groups = form.groups(columns)
    if quantisation.recipe == "fp8_blocks":
        pieces.check_shape("scale", (-(-rows // quantisation.group), groups))
    else:
        pieces.check_shape("scale", *scale_shapes(rows, groups))
    return form.storage, (rows, columns)


def _opened(pieces: PieceBytes) -> Matrix:
    stored, spoilt = pieces.bits("weight"), not_numbers(pieces.form.codes)

    def codes(wanted: range) -> NDArray[np.uint8]:
        own: NDArray[np.uint8] = stored[wanted.start : wanted.stop]
        if spoilt[own].any():
            raise pieces.corrupt("weight", "has a code that stands for no finite number")
        return own

    if pieces.largest("scale") > MOST_SCALE:
        raise pieces.corrupt("scale", f"has a scale of more than {MOST_SCALE:g}")
    if pieces.recipe == "fp8_blocks":
        scales = np.repeat(pieces.scales("scale"), pieces.form.group, axis=0)
    else:
        scales = scales_of_rows(pieces, "scale")
    return grouped_matrix(pieces, codes, scales)


RECIPE = Recipe(
    needed={"weight": (".weight",), "scale": (".weight_scale_inv", ".weight_scale")},
    optional={},
    described=_described,
    opened=_opened,
    storages=FLOATS,
)
