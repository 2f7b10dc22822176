"""Ministral: Mistral whose config says for each layer whether it has the window."""

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
from layerline.models.family import Family
from layerline.models.layer_kinds import FULL, SLIDING, windowed_layers
from layerline.models.spec import LayerSpec, ModelSpec

NAME = "ministral"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 1 << 17)
    attention = attention_from_config(
        config,
        kv_heads=8,
        rope=rope_from_config(config, context_tokens),
    )
    window_tokens = window_from_config(config, context_tokens)
    default = [SLIDING if window_tokens else FULL] * layer_count(config)
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward_from_config(config))
    layers = windowed_layers(layer, layer_types(config, default), window_tokens)
    return model_from_config(config, NAME, layers, context_tokens)


FAMILY = Family(model_type=NAME, from_config=from_config)
