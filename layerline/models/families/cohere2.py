"""Cohere 2 (Command R7B, A): one norm, which takes the mean away, before both branches; full layers do not rotate."""

from collections.abc import Sequence
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
from layerline.models.config_rope import rope_from_config
from layerline.models.family import Family
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    feed_forward_from_gguf,
    layer_count_of_gguf,
    model_from_gguf,
    window_from_gguf,
)
from layerline.models.layer_kinds import every_nth_full, layers_of_kinds
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec

NAME = "cohere2"
FULL_EVERY = 4
LOGIT_SCALE = 0.0625


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 8192)
    attention = attention_from_config(
        config,
        rope=replace(rope_from_config(config, context_tokens), interleaved=True),
        qkv_bias=config.flag("attention_bias", False),
    )
    attention = replace(attention, output_bias=attention.qkv_bias)
    default = every_nth_full(layer_count(config), config.integer("sliding_window_pattern", FULL_EVERY))
    window_tokens = window_from_config(config, context_tokens)
    return model_from_config(
        config,
        NAME,
        _layers(attention, feed_forward_from_config(config), layer_types(config, default), window_tokens),
        context_tokens,
        epsilon="layer_norm_eps",
        norm_epsilon=1e-5,
        tied_output=True,
        norm="layer",
        logit_scale=config.positive("logit_scale", LOGIT_SCALE),
    )


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    attention = attention_from_gguf(gguf, interleaved=True)
    kinds = every_nth_full(layer_count_of_gguf(gguf), FULL_EVERY)
    return model_from_gguf(
        gguf,
        NAME,
        _layers(attention, feed_forward_from_gguf(gguf), kinds, window_from_gguf(gguf)),
        epsilon="attention.layer_norm_epsilon",
        norm="layer",
        logit_scale=gguf.number("logit_scale", LOGIT_SCALE),
    )


def _layers(
    attention: AttentionSpec, feed_forward: FeedForwardSpec, kinds: Sequence[str], window_tokens: int
) -> list[LayerSpec]:
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward, parallel=True)
    sliding = replace(layer, mixer=replace(attention, window_tokens=window_tokens))
    return layers_of_kinds(kinds, full=replace(layer, mixer=replace(attention, rope=None)), sliding=sliding)


FAMILY = Family(model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf)
