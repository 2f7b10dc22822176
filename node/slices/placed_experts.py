"""Which experts of a layer a rank has, and for which rows it computes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerline.models.expert_placement import ExpertPlacement
from layerline.models.feed_forward_spec import ExpertsSpec
from layerline.models.model_parts import LayerPart


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PlacedExperts:
    """Those that a rank has, as its placement lists them. Of each expert, and of a shared one behind them, `copies_E`
    is how many ranks have it, and `turns_E` the rows that it computes: those at positions that are this modulo the
    copies; of those that it has not, less than 0.
    """

    own: tuple[int, ...]
    copies_E: NDArray[np.int32]
    turns_E: NDArray[np.int32]

    @classmethod
    def of(cls, spec: ExpertsSpec, part: LayerPart, placement: ExpertPlacement, rank: int) -> PlacedExperts:
        """Those of a rank that has `part` of the layer. Every rank has its part of a shared expert for all rows."""
        ranks = len(placement.ranks)
        shared = (ranks, rank) if part.deals_shared else (1, 0)
        return cls(
            own=placement.ranks[rank],
            copies_E=np.array([*placement.copies(spec.count), shared[0]], np.int32),
            turns_E=np.array([*placement.turns(rank, spec.count), shared[1]], np.int32),
        )
