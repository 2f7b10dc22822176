"""Reading latent attention and the experts beside it from a GGUF file, where all families of them are one.

Source: `deepseek2.cpp` of llama.cpp, and `DeepseekV2Model` of its converter.
"""

from __future__ import annotations

from dataclasses import replace

from layerline.models.config_latent import NORM_EPSILON, latent_attention
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.gguf_experts import (
    experts_from_gguf,
    scoring_from_gguf,
    sparse_layers_of_gguf,
    with_shared,
    without_further,
)
from layerline.models.gguf_fields import GgufModel, check_gguf, feed_forward_from_gguf, layer_count_of_gguf
from layerline.models.latent import LatentSpec
from layerline.models.rope_factors import yarn_amplitude
from layerline.models.spec import AttentionSpec, LayerSpec


def latent_from_gguf(gguf: GgufModel) -> AttentionSpec:
    """The attention of every layer. Older files have one matrix that makes keys and values, others two."""
    check_gguf(gguf, experts=True)
    if gguf.metadata.raw(gguf.key("attention.temperature_scale")):
        raise gguf.unsupported("queries that are scaled by their position (attention.temperature_scale)")
    rank, turned = gguf.integer("attention.kv_lora_rank"), gguf.integer("rope.dimension_count")
    apart = "blk.0.attn_kv_b.weight" not in gguf.tensors
    ending = "_mla" if gguf.metadata.has(gguf.key("attention.key_length_mla")) else ""
    rope = replace(gguf.rope, beside_latent=True)
    attention = AttentionSpec(
        heads=gguf.integer("attention.head_count"),
        kv_heads=1,
        head_dim=turned + rank,
        value_dim=rank,
        rope=rope.rope(turned + rank, may_be_partial=True, interleaved=True),
        latent=LatentSpec(
            query_rank=gguf.integer("attention.q_lora_rank", 0),
            plain_dim=gguf.integer(f"attention.key_length{ending}") - turned,
            value_dim=gguf.integer(f"attention.value_length{ending}"),
            norm_epsilon=NORM_EPSILON,
            apart=apart,
        ),
    )
    made = attention.rope
    growth = yarn_amplitude(made.factor, rope.all_dim_scale) if made and made.scaling == "yarn" else 1.0
    return latent_attention(attention, growth * growth)


def latent_layers_from_gguf(gguf: GgufModel, attention: AttentionSpec) -> list[LayerSpec]:
    """The layers, each with experts if it has a router."""
    has_experts = gguf.integer("expert_count", 0) > 0
    dense = [feed_forward_from_gguf(gguf)] * layer_count_of_gguf(gguf)
    made = sparse_layers_of_gguf(gguf, _experts(gguf)) if has_experts else dense
    return without_further(gguf, [LayerSpec(mixer=attention, feed_forward=each) for each in made])


def _experts(gguf: GgufModel) -> FeedForwardSpec:
    """V2 chooses by softmax and says so only lately; by sigmoid a group is as good as its two best experts."""
    scoring = scoring_from_gguf(gguf, "softmax", "sigmoid")
    normalised = gguf.metadata.flag(gguf.key("expert_weights_norm"), False)
    sparse = experts_from_gguf(gguf, scoring=scoring, normalised=normalised, in_groups=True)
    shared = sparse.intermediate * gguf.integer("expert_shared_count", 0)
    sparse = with_shared(gguf, sparse, shared) if shared else sparse
    assert sparse.experts is not None, "it is of experts"
    one = sparse.experts.groups > 1 and scoring == "softmax"
    return replace(sparse, experts=replace(sparse.experts, group_best=1 if one else 2))
