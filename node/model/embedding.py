"""The embedding: the first residual of token ids. Owns nothing but the seam behind which the matrix may be split.

Shapes: T rows, C hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from torch.nn import functional


class Embedding(Protocol):
    """What turns token ids into rows."""

    def __call__(self, ids_T: Tensor) -> Tensor:
        """The row [T, C] of each id."""


class PlainEmbedding:
    """A matrix as it is."""

    def __init__(self, weight_VC: Tensor) -> None:
        self._weight_VC = weight_VC

    def __call__(self, ids_T: Tensor) -> Tensor:
        return functional.embedding(ids_T, self._weight_VC)
