"""Every recipe by its name, and from the bytes of a matrix's pieces to its rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from layerline.models.quantised import awq, compressed, fp8, gptq, mxfp4, transposed
from layerline.models.quantised.recipe import Matrix, PieceBytes, Recipe
from layerline.models.stored import tensor_corrupt
from layerline.models.tensor_table import StoredTensor

RECIPES: Mapping[str, Recipe] = {
    "gptq": gptq.RECIPE,
    "gptq_v2": gptq.RECIPE,
    "awq": awq.RECIPE,
    "packed": compressed.PACKED,
    "bytes": compressed.BYTES,
    "fp8": fp8.RECIPE,
    "fp8_blocks": fp8.RECIPE,
    "mxfp4": mxfp4.RECIPE,
}


def matrix_of(tensor: StoredTensor, stored: Mapping[str, NDArray[np.uint8]]) -> Matrix:
    """The matrix that `tensor` is, of the bytes of its pieces by role.

    Raises ModelCorruptError, as do its rows, for scales and codes that are no numbers, and groups out of range.
    """
    if tensor.recipe == transposed.TRANSPOSED:
        return transposed.opened(PieceBytes(tensor, stored))
    recipe = RECIPES.get(tensor.recipe)
    if recipe is None:
        raise tensor_corrupt(tensor.name, tensor.file, f"is stored by {tensor.recipe!r}, which is not known")
    return recipe.opened(PieceBytes(tensor, stored))
