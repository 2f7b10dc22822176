"""Qwen2 with experts, and beside them one that is shared: what it gives is weighed by a gate of its own."""

from dataclasses import replace

from layerline.models.config_experts import experts_from_config, sparse_layers
from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    layer_types,
    model_from_config,
    window_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.expert_rules import with_experts
from layerline.models.family import Family
from layerline.models.gguf_experts import experts_from_gguf, sparse_layers_of_gguf, with_shared
from layerline.models.gguf_fields import GgufModel, attention_from_gguf, check_gguf, model_from_gguf, refuse_window
from layerline.models.layer_kinds import FULL, SLIDING
from layerline.models.spec import LayerSpec, ModelSpec

NAME = "qwen2_moe"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 1 << 15)
    attention = attention_from_config(
        config,
        kv_heads=16,
        rope=rope_from_config(config, context_tokens),
        qkv_bias=config.flag("qkv_bias", True),
    )
    dense = feed_forward_from_config(config)
    experts = replace(
        experts_from_config(config, count=60, chosen=4, normalised=config.flag("norm_topk_prob", False)),
        shared_intermediate=config.integer("shared_expert_intermediate_size", 5632),
        shared_gate=True,
    )
    sparse = replace(dense, intermediate=config.integer("moe_intermediate_size", 1408), experts=experts)
    layers = [
        LayerSpec(mixer=replace(attention, window_tokens=window_tokens), feed_forward=feed_forward)
        for window_tokens, feed_forward in zip(
            _windows(config, context_tokens), sparse_layers(config, dense, sparse), strict=True
        )
    ]
    return model_from_config(config, NAME, layers, context_tokens)


def _windows(config: ConfigFields, context_tokens: int) -> list[int]:
    """Of each layer; unlike Qwen2's, every second of the first few has one."""
    switched_on = config.flag("use_sliding_window", False)
    window_tokens = window_from_config(config, context_tokens) if switched_on else 0
    first = config.integer("max_window_layers", 28) if switched_on else 0
    usual = [SLIDING if layer < first and layer % 2 == 0 else FULL for layer in range(layer_count(config))]
    return [window_tokens if kind == SLIDING else 0 for kind in layer_types(config, usual)]


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf, experts=True)
    refuse_window(gguf)
    attention = attention_from_gguf(gguf, qkv_bias="blk.0.attn_q.bias" in gguf.tensors)
    width = gguf.integer("expert_shared_feed_forward_length", gguf.integer("feed_forward_length"))
    sparse = with_shared(gguf, experts_from_gguf(gguf), width)
    layers = [LayerSpec(mixer=attention, feed_forward=each) for each in sparse_layers_of_gguf(gguf, sparse)]
    return model_from_gguf(gguf, NAME, layers)


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture="qwen2moe",
    from_gguf=from_gguf,
    layer_tensors=with_experts,
)
