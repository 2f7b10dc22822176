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
    heads: Side
    experts: Side
    shared: Side
    one: Side
    query_latent: Side
    latent: Side
    made_from_latent: Side
    read_latents: Side
    plain: Side
    token_input: Side

    @classmethod
    def of(cls, spec: ModelSpec, part: ModelPart, layer: int) -> Sides:
        """Those of one layer of a model of which one rank has `part`; hidden side and router are never split."""
        attention, feed_forward = spec.layer(layer).attention, spec.layer(layer).feed_forward
        own, experts, latent = part.kinds[spec.layer_kinds[layer]], feed_forward.experts, attention.latent
        made_dim = latent.plain_dim + latent.value_dim if latent else 0
        return cls(
            vocabulary=Side(length=spec.vocabulary, part=part.vocabulary),
            hidden=_whole(spec.hidden),
            feed_forward=Side(length=feed_forward.intermediate, part=own.intermediate),
            queries=_of_heads(attention.heads, own.heads, attention.made_query_dim),
            keys=_of_heads(attention.kv_heads, own.kv_heads, attention.head_dim),
            values=_of_heads(attention.kv_heads, own.kv_heads, attention.value_dim),
            attended=_of_heads(attention.heads, own.heads, attention.made_value_dim),
            head=_whole(attention.head_dim),
            heads=_of_heads(attention.heads, own.heads, 1),
            experts=_whole(experts.count if experts else 0),
            shared=Side(length=experts.shared_intermediate if experts else 0, part=own.shared),
            one=_whole(1),
            query_latent=_whole(latent.query_rank if latent else 0),
            latent=_whole(attention.value_dim),
            made_from_latent=_of_heads(attention.heads, own.heads, made_dim),
            read_latents=_of_heads(attention.heads, own.heads, attention.value_dim),
            plain=_whole(latent.plain_dim if latent else 0),
            token_input=_whole(spec.token_input),
        )


def _whole(length: int) -> Side:
    return Side(length=length, part=range(length))


def _of_heads(heads: int, part: range, head_dim: int) -> Side:
    return Side(length=heads * head_dim, part=range(part.start * head_dim, part.stop * head_dim))
