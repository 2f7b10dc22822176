"""OLMo 3: OLMo 2 with a window in most layers, in which its rotation is not scaled. In GGUF it is olmo2."""

from dataclasses import replace

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
from layerline.models.config_rope import has_layer_types, rope_from_config, rope_of_layer_type
from layerline.models.family import Family
from layerline.models.layer_kinds import FULL, SLIDING, every_nth_full, layers_of_kinds
from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import LayerSpec, ModelSpec

NAME = "olmo3"
FULL_EVERY = 4
THETA = 500000.0


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 2048)
    attention = attention_from_config(
        config,
        rope=None,
        qkv_bias=config.flag("attention_bias", False),
    )
    attention = replace(attention, output_bias=attention.qkv_bias, qk_norm="rows")
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward_from_config(config), norms="after")
    window_tokens = window_from_config(config, context_tokens)
    full, sliding = (
        replace(layer, mixer=replace(attention, rope=_rope(config, kind, context_tokens), window_tokens=window))
        for kind, window in ((FULL, 0), (SLIDING, window_tokens))
    )
    kinds = layer_types(config, every_nth_full(layer_count(config), FULL_EVERY))
    layers = layers_of_kinds(kinds, full=full, sliding=sliding)
    return model_from_config(config, NAME, layers, context_tokens, norm_epsilon=1e-5)


def _rope(config: ConfigFields, kind: str, context_tokens: int) -> RopeSpec | None:
    if has_layer_types(config):
        return rope_of_layer_type(config, context_tokens, kind, theta=THETA)
    rope = rope_from_config(config, context_tokens, theta=THETA)
    return RopeSpec(theta=rope.theta) if kind == SLIDING else rope


FAMILY = Family(model_type=NAME, from_config=from_config)
