"""Multi-head latent attention, as data: what keys and values are made of, and how long the parts of a head are.

A position has one latent from which all heads make their keys and values, and one key of numbers that are turned, which
they share. A head's key is its matrix times the latent. So a query that was multiplied with that matrix reads latents
as if they were keys, and a head's value matrix may wait until latents have been weighed and added up: attention is that
of one key-value head whose key is [turned ; latent] and whose value is the latent. Only that is kept of a position.

Source: DeepSeek-V2 (2024), section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerline.checks import require
from layerline.models.feed_forward_spec import MOST_SIDE

PANEL_ROWS = 16  # of which sizes are multiples, so that a head's matrices are whole panels


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentSpec:
    """What the attention of a layer with a latent has besides one key-value head; the latent's size is its value's.

    `apart` says how the file has the matrices by which keys and values are made of a latent: one below the other, head
    by head, or each by itself, those for keys transposed.
    """

    query_rank: int  # of the latent that queries are made of; 0: they are made of the residual
    plain_dim: int  # numbers of a head's query that are not turned
    value_dim: int  # numbers of a head's value
    norm_epsilon: float  # of the norms of latents
    apart: bool = False

    def __post_init__(self) -> None:
        sizes = (self.plain_dim, self.value_dim)
        require(all(0 < size < MOST_SIDE for size in sizes), "a size of latent attention is out of range")
        require(0 <= self.query_rank < MOST_SIDE, "the rank of queries is out of range")
        require(not any(size % PANEL_ROWS for size in sizes), f"a head is no multiple of {PANEL_ROWS} numbers")
        require(self.norm_epsilon > 0, "the epsilon of the norms of latents is out of range")
