"""Which slices the matrices of attention with a latent consist of.

Behind these a head's query, and the key that all heads share, have the numbers first that are turned, in the order of
pairs; in files they are the last.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.spec import AttentionSpec
from node.slices.feed_forward_slices import Slices
from node.slices.rope_frequencies import pair_order
from node.slices.sides import Sides
from node.slices.tensor_source import TensorSlice


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentSlices:
    """Those of a layer; without a latent of queries `query_down` and `query_norm` are empty.

    `up` has the matrices by which keys and values are made of a latent, of each head one below the other; where the
    file has them apart, first those for keys, transposed, then those for values.
    """

    query_down: Slices
    query_norm: Slices
    queries: Slices
    latent: Slices
    latent_norm: Slices
    up: Slices

    @classmethod
    def of(cls, spec: AttentionSpec, sides: Sides, prefix: str) -> LatentSlices:
        """Those of a layer whose tensors are called `prefix` and so on."""
        latent = spec.latent
        assert latent is not None, "it has no latent"
        ranked = latent.query_rank > 0
        return cls(
            query_down=(TensorSlice(name=f"{prefix}q_down", rows=sides.query_latent, columns=sides.hidden),) * ranked,
            query_norm=(TensorSlice(name=f"{prefix}q_latent_norm", rows=sides.query_latent),) * ranked,
            queries=(
                TensorSlice(
                    name=f"{prefix}q",
                    rows=sides.queries,
                    columns=sides.query_latent if ranked else sides.hidden,
                    head_order=turned_first(spec, latent.plain_dim),
                ),
            ),
            latent=(
                TensorSlice(
                    name=f"{prefix}kv_down",
                    rows=sides.keys,
                    columns=sides.hidden,
                    head_order=turned_first(spec, spec.value_dim),
                ),
            ),
            latent_norm=(TensorSlice(name=f"{prefix}kv_latent_norm", rows=sides.latent),),
            up=(
                (
                    TensorSlice(name=f"{prefix}k_up", rows=sides.read_latents, columns=sides.plain),
                    TensorSlice(name=f"{prefix}v_up", rows=sides.attended, columns=sides.latent),
                )
                if latent.apart
                else (TensorSlice(name=f"{prefix}kv_up", rows=sides.made_from_latent, columns=sides.latent),)
            ),
        )


def turned_first(spec: AttentionSpec, others: int) -> tuple[int, ...]:
    """Which row in a file each row of a head is: there those that are turned are behind so many others."""
    assert spec.rope is not None, "the key beside a latent is turned"
    order = pair_order(spec.rope, spec.head_dim)[: spec.turned_dim] or range(spec.turned_dim)
    return (*(others + row for row in order), *range(others))
