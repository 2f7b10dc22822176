"""How queries grow with their position, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from layerline.checks import require
from layerline.models.feed_forward_spec import MOST_SIDE


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryGrowth:
    """Queries are multiplied by 1 + factor * ln(1 + ⌊(position + offset) / length⌋), so that scores stay sharp.

    Source: Nakanishi, Scalable-Softmax (2025).
    """

    factor: float
    length: int  # positions
    offset: int = 0  # positions

    def __post_init__(self) -> None:
        require(0 < self.factor < math.inf, "the growth of queries is out of range")
        require(0 < self.length < MOST_SIDE, "the length after which queries grow is out of range")
        require(0 <= self.offset < MOST_SIDE, "the offset of the growth of queries is out of range")
