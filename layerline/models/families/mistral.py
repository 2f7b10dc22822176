"""Mistral: Llama with a window in every layer, unless its config says that there is none. In GGUF it is llama."""

from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
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
    context_tokens = config.integer("max_position_embeddings", 1 << 17)
    attention = attention_from_config(
        config,
        kv_heads=8,
        rope=rope_from_config(config, context_tokens),
    )
    windowed = replace(attention, window_tokens=window_from_config(config, context_tokens))
    layer = LayerSpec(mixer=windowed, feed_forward=feed_forward_from_config(config))
    return model_from_config(config, NAME, [layer] * layer_count(config), context_tokens)


FAMILY = Family(model_type=NAME, from_config=from_config)
