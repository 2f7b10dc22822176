"""The sides of a model's tensors, and which part of each a rank holds: what its share means for rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.shares import RankShare
from layerline.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side of a tensor, as long as it is in the file, and the part of it that is held."""

    length: int
    part: range


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides:
    """The sides that tensors have, in the words of `layerline.models.families.family`."""

    vocabulary: Side
    hidden: Side
    feed_forward: Side
    queries: Side
    keys: Side

    @classmethod
    def of(cls, spec: ModelSpec, share: RankShare) -> Sides:
        """Those of a model of which one rank has `share`; the hidden side is never split."""
        return cls(
            vocabulary=Side(length=spec.vocabulary, part=share.vocabulary),
            hidden=Side(length=spec.hidden, part=range(spec.hidden)),
            feed_forward=Side(length=spec.intermediate, part=share.intermediate),
            queries=_of_heads(spec.heads, share.heads, spec.head_dim),
            keys=_of_heads(spec.kv_heads, share.kv_heads, spec.head_dim),
        )


def _of_heads(heads: int, part: range, head_dim: int) -> Side:
    return Side(length=heads * head_dim, part=range(part.start * head_dim, part.stop * head_dim))
