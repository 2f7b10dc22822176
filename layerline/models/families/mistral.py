"""Mistral: Llama with a window in every layer, unless its config says that there is none. In GGUF it is llama."""

from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    even_head_dim,
    feed_forward_from_config,
    layer_count,
    model_from_config,
    unsupported,
    window_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.family import Family
from layerline.models.spec import LayerSpec, ModelSpec

NAME = "mistral"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    if config.has("layer_types"):
        raise unsupported(config, "layer_types, which make it a ministral model")
    context_tokens, even = config.integer("max_position_embeddings", 1 << 17), even_head_dim(config)
    attention = attention_from_config(
        config,
        kv_heads=config.integer("num_key_value_heads", 8),
        head_dim=config.nullable_integer("head_dim", missing=even, null=even),
        rope=rope_from_config(config, context_tokens),
    )
    windowed = replace(attention, window_tokens=window_from_config(config, context_tokens))
    layer = LayerSpec(attention=windowed, feed_forward=feed_forward_from_config(config))
    return model_from_config(config, NAME, [layer] * layer_count(config), context_tokens)


FAMILY = Family(model_type=NAME, from_config=from_config)
