"""The sides of a model's tensors, and which part of each a rank holds: what its part means for rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.model_parts import ModelPart
from layerline.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side of a tensor, as long as it is in the file, and the part of it that is held."""

    length: int
    part: range


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides:
    """The sides that tensors have, in the words of `layerline.models.tensor_rules`."""

    vocabulary: Side
    hidden: Side
    feed_forward: Side
    queries: Side
    keys: Side
    values: Side
    attended: Side
    head: Side

    @classmethod
    def of(cls, spec: ModelSpec, part: ModelPart, layer: int) -> Sides:
        """Those of one layer of a model of which one rank has `part`; the hidden side is never split."""
        attention, feed_forward = spec.layer(layer).attention, spec.layer(layer).feed_forward
        own = part.kinds[spec.layer_kinds[layer]]
        return cls(
            vocabulary=Side(length=spec.vocabulary, part=part.vocabulary),
            hidden=Side(length=spec.hidden, part=range(spec.hidden)),
            feed_forward=Side(length=feed_forward.intermediate, part=own.intermediate),
            queries=_of_heads(attention.heads, own.heads, attention.head_dim),
            keys=_of_heads(attention.kv_heads, own.kv_heads, attention.head_dim),
            values=_of_heads(attention.kv_heads, own.kv_heads, attention.value_dim),
            attended=_of_heads(attention.heads, own.heads, attention.value_dim),
            head=Side(length=attention.head_dim, part=range(attention.head_dim)),
        )


def _of_heads(heads: int, part: range, head_dim: int) -> Side:
    return Side(length=heads * head_dim, part=range(part.start * head_dim, part.stop * head_dim))
