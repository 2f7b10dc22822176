"""Qwen3 with experts: Qwen3 whose layers, or some of them, choose a few of many small feed-forwards for each row."""

from dataclasses import replace

from layerline.models.config_experts import experts_from_config, sparse_layers
from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    model_from_config,
    window_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.expert_rules import with_experts
from layerline.models.family import Family
from layerline.models.gguf_experts import experts_from_gguf, sparse_layers_of_gguf
from layerline.models.gguf_fields import GgufModel, attention_from_gguf, check_gguf, model_from_gguf, refuse_window
from layerline.models.spec import LayerSpec, ModelSpec

NAME = "qwen3_moe"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 1 << 15)
    attention = attention_from_config(
        config,
        kv_heads=4,
        rope=rope_from_config(config, context_tokens),
        qkv_bias=config.flag("attention_bias", False),
    )
    window_tokens = window_from_config(config, context_tokens) if config.flag("use_sliding_window", False) else 0
    attention = replace(attention, qk_norm="heads", output_bias=attention.qkv_bias, window_tokens=window_tokens)
    dense = feed_forward_from_config(config)
    sparse = replace(
        dense,
        intermediate=config.integer("moe_intermediate_size", 768),
        experts=experts_from_config(config, count=128, chosen=8, normalised=config.flag("norm_topk_prob", False)),
    )
    layers = [LayerSpec(mixer=attention, feed_forward=each) for each in sparse_layers(config, dense, sparse)]
    return model_from_config(config, NAME, layers, context_tokens)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf, experts=True)
    refuse_window(gguf)
    attention = replace(attention_from_gguf(gguf), qk_norm="heads")
    sparse = experts_from_gguf(gguf, normalised=True)
    layers = [LayerSpec(mixer=attention, feed_forward=each) for each in sparse_layers_of_gguf(gguf, sparse)]
    return model_from_gguf(gguf, NAME, layers)


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture="qwen3moe",
    from_gguf=from_gguf,
    layer_tensors=with_experts,
)
