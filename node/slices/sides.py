"""The sides of a model's tensors, and which part of each a rank holds: what its part means for rows and columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Set
from dataclasses import dataclass

from layerline.models.model_parts import LayerPart, ModelPart
from layerline.models.recurrent import DeltaNetSpec
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import (
    ATTENDED,
    CONVOLVED,
    FEED_FORWARD,
    HEADS,
    KEYS,
    MADE_FROM_LATENT,
    QUERIES,
    READ_LATENTS,
    SHARED,
    VALUES,
    VOCABULARY,
    side_lengths,
)

_OF_HEADS = {HEADS, ATTENDED, READ_LATENTS, MADE_FROM_LATENT, CONVOLVED}  # in every layer that has them


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side of a tensor, as long as it is in the file, and the part of it that is held."""

    length: int
    part: range


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides:
    """The sides that tensors have, in the words of `layerline.models.tensor_rules`; of length 0 where there is none."""

    vocabulary: Side
    hidden: Side
    feed_forward: Side
    queries: Side
    keys: Side
    values: Side
    attended: Side
    head: Side
    heads: Side
    experts: Side
    shared: Side
    one: Side
    query_latent: Side
    latent: Side
    made_from_latent: Side
    read_latents: Side
    plain: Side
    taps: Side
    convolved: Side
    token_input: Side

    @classmethod
    def of(cls, spec: ModelSpec, part: ModelPart, layer: int) -> Sides:
        """Those of one layer of a model of which one rank has `part`; hidden side and router are never split."""
        own, kind = part.kinds[spec.layer_kinds[layer]], spec.layer(layer)
        lengths = side_lengths(spec, kind)
        parts = {VOCABULARY: part.vocabulary, FEED_FORWARD: own.intermediate, SHARED: own.shared}
        for heads, whole, names in _split_sides(own, kind):
            for name in names & lengths.keys():
                size = lengths[name] // whole
                parts[name] = range(heads.start * size, heads.stop * size)
        sides = {field.name: lengths.get(field.name, 0) for field in dataclasses.fields(cls)}
        return cls(**{name: Side(length=size, part=parts.get(name, range(size))) for name, size in sides.items()})


def _split_sides(part: LayerPart, layer: LayerSpec) -> Iterator[tuple[range, int, Set[str]]]:
    """The heads of which a rank has some, of how many, and the sides that are made of as many equal parts."""
    mixer = layer.mixer
    of_queries = {VALUES} if isinstance(mixer, DeltaNetSpec) else {QUERIES}
    yield part.heads, mixer.heads, of_queries | _OF_HEADS
    yield part.kv_heads, mixer.kv_heads, {QUERIES, KEYS, VALUES} - of_queries
