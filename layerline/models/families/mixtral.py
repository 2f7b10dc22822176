"""Mixtral: Mistral with experts, each as large as a feed-forward. In GGUF it is llama."""

from dataclasses import replace

from layerline.models.config_experts import experts_from_config
from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    model_from_config,
    window_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.expert_rules import ExpertNames, with_experts
from layerline.models.family import Family
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule

NAME = "mixtral"
NAMES = ExpertNames(
    router="block_sparse_moe.gate.weight",
    routers_otherwise=("mlp.gate.weight",),
    expert="block_sparse_moe.experts.{e}",
    gate="w1",
    up="w3",
    down="w2",
)


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 1 << 17)
    attention = attention_from_config(
        config,
        kv_heads=8,
        rope=rope_from_config(config, context_tokens, theta=1e6),
    )
    window_tokens = window_from_config(config, context_tokens, missing=0)
    feed_forward = replace(
        feed_forward_from_config(config), experts=experts_from_config(config, count=8, chosen=2, normalised=True)
    )
    layer = LayerSpec(mixer=replace(attention, window_tokens=window_tokens), feed_forward=feed_forward)
    return model_from_config(config, NAME, [layer] * layer_count(config), context_tokens, norm_epsilon=1e-5)


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return with_experts(layer, NAMES)


FAMILY = Family(model_type=NAME, from_config=from_config, layer_tensors=layer_tensors)
