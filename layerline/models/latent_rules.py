"""The tensors of attention with a latent: their canonical names and sides, and where either container has them."""

from __future__ import annotations

from collections.abc import Iterator

from layerline.models.expert_rules import ExpertNames, with_experts
from layerline.models.latent import LatentSpec
from layerline.models.spec import LayerSpec
from layerline.models.tensor_rules import (
    ATTENDED,
    HIDDEN,
    KEYS,
    LATENT,
    MADE_FROM_LATENT,
    PLAIN,
    QUERIES,
    QUERY_LATENT,
    READ_LATENTS,
    TensorRule,
    layer_rule,
)

_REPLACED = frozenset({"q", "k", "v"})


def with_latent(layer: LayerSpec, names: ExpertNames) -> tuple[TensorRule, ...]:
    """The tensors of a layer that most families have, those of latent attention in the place of its q, k and v."""
    latent, rules = layer.attention.latent, with_experts(layer, names)
    if latent is None:
        return rules
    own = (rule for rule in rules if rule.name.rpartition(".")[2] not in _REPLACED)
    return (*own, *_latent_tensors(latent))


def _latent_tensors(latent: LatentSpec) -> Iterator[TensorRule]:
    if latent.query_rank:
        yield layer_rule("q_down", "self_attn.q_a_proj.weight", "attn_q_a.weight", QUERY_LATENT, HIDDEN)
        yield layer_rule("q_latent_norm", "self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", QUERY_LATENT)
        yield layer_rule("q", "self_attn.q_b_proj.weight", "attn_q_b.weight", QUERIES, QUERY_LATENT)
    else:
        yield layer_rule("q", "self_attn.q_proj.weight", "attn_q.weight", QUERIES, HIDDEN)
    yield layer_rule("kv_down", "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", KEYS, HIDDEN)
    yield layer_rule("kv_latent_norm", "self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", LATENT)
    if latent.apart:
        yield layer_rule("k_up", "self_attn.k_b_proj.weight", "attn_k_b.weight", READ_LATENTS, PLAIN)
        yield layer_rule("v_up", "self_attn.v_b_proj.weight", "attn_v_b.weight", ATTENDED, LATENT)
    else:
        yield layer_rule("kv_up", "self_attn.kv_b_proj.weight", "attn_kv_b.weight", MADE_FROM_LATENT, LATENT)
