"""A matrix that a folder stores with its inputs as rows, as gpt-oss has its experts where they are not quantised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from layerline.models.quantised.recipe import Matrix, PieceBytes
from layerline.models.tensor_table import StoredPiece, StoredTensor

TRANSPOSED, WHOLE = "transposed", "whole"


def seen_transposed(stored: StoredTensor) -> StoredTensor:
    """The matrix whose transpose is stored."""
    piece = StoredPiece(
        role=WHOLE,
        name=stored.name,
        file=stored.file,
        storage=stored.storage,
        shape=stored.shape,
        offset=stored.offset,
        nbytes=stored.nbytes,
    )
    return replace(stored, shape=stored.shape[::-1], offset=0, recipe=TRANSPOSED, pieces=(piece,))


def opened(pieces: PieceBytes) -> Matrix:
    """Its rows."""
    stored = pieces.bits(WHOLE)

    def rows(wanted: range) -> NDArray[np.uint8]:
        return np.ascontiguousarray(stored[:, wanted.start : wanted.stop].T).view(np.uint8)

    return Matrix(rows)
