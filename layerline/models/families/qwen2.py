"""Qwen2 and Qwen2.5: Llama with biases on queries, keys and values, and a window that a flag switches on."""

from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    model_from_config,
    windows_by_layer,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.family import Family
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    plain_model_from_gguf,
    refuse_window,
)
from layerline.models.spec import LayerSpec, ModelSpec

NAME = "qwen2"


DEFAULTS_OF_VL = {"rope_theta": 1000000.0, "rms_norm_eps": 1e-5, "num_key_value_heads": 8}
TEXT_PARTS = ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")


def from_config(config: ConfigFields) -> ModelSpec:
    if config.text("model_type", NAME) in TEXT_PARTS:
        config = config.with_missing(DEFAULTS_OF_VL)
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 1 << 15)
    attention = attention_from_config(
        config,
        kv_heads=32,
        rope=rope_from_config(config, context_tokens),
        qkv_bias=True,
    )
    windows = windows_by_layer(config, context_tokens)
    feed_forward = feed_forward_from_config(config)
    layers = [
        LayerSpec(mixer=replace(attention, window_tokens=window_tokens), feed_forward=feed_forward)
        for window_tokens in windows
    ]
    return model_from_config(config, NAME, layers, context_tokens)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    refuse_window(gguf)
    return plain_model_from_gguf(gguf, NAME, attention_from_gguf(gguf, qkv_bias=True))


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture=NAME,
    from_gguf=from_gguf,
    text_parts=TEXT_PARTS,
)
