"""MiniMax-M2: experts scored by sigmoid; all queries are normed as one, as are all keys, and turned in part."""

from dataclasses import replace

from layerline.models.config_experts import experts_from_config
from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    model_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.expert_rules import ExpertNames, with_experts
from layerline.models.family import Family
from layerline.models.gguf_experts import experts_from_gguf
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    layer_count_of_gguf,
    model_from_gguf,
    refuse_window,
)
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule

NAME, ARCHITECTURE = "minimax_m2", "minimax-m2"
THETA = 5000000.0
NAMES = ExpertNames(
    router="block_sparse_moe.gate.weight",
    routers_otherwise=("mlp.gate.weight",),
    choice_bias="block_sparse_moe.e_score_correction_bias",
    expert="block_sparse_moe.experts.{e}",
    gate="w1",
    up="w3",
    down="w2",
)


def from_config(config: ConfigFields) -> ModelSpec:
    """Published configs say how many numbers of a head are turned, transformers which part of it."""
    check_config(config)
    context_tokens, head_dim = config.integer("max_position_embeddings", 196608), config.integer("head_dim", 128)
    rope = rope_from_config(config, context_tokens, head_dim=head_dim, theta=THETA)
    if not rope.rotated and config.raw("rotary_dim"):
        rotated = config.integer("rotary_dim")
        if not 0 < rotated <= head_dim or rotated % 2:
            raise config.wrong("rotary_dim", f"a part of {head_dim} numbers that consists of pairs")
        rope = replace(rope, rotated=rotated % head_dim)
    attention = attention_from_config(config, kv_heads=8, head_dim=head_dim, rope=rope)
    experts = experts_from_config(config, count=256, chosen=8, scoring="sigmoid", normalised=True)
    feed_forward = replace(feed_forward_from_config(config), experts=replace(experts, choice_bias=True))
    layer = LayerSpec(mixer=replace(attention, qk_norm="rows"), feed_forward=feed_forward)
    return model_from_config(config, NAME, [layer] * layer_count(config), context_tokens)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf, experts=True)
    refuse_window(gguf)
    layer = LayerSpec(
        mixer=replace(attention_from_gguf(gguf, may_be_partial=True), qk_norm="rows"),
        feed_forward=experts_from_gguf(gguf, scoring="sigmoid", normalised=True),
    )
    return model_from_gguf(gguf, NAME, [layer] * layer_count_of_gguf(gguf))


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return with_experts(layer, NAMES)


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture=ARCHITECTURE,
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
)
