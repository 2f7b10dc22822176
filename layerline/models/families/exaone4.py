"""EXAONE 4: norms after attention and feed-forward, and normed heads; beside windows, full layers do not rotate."""

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
from layerline.models.layer_kinds import FULL, SLIDING, every_nth_full, layers_of_kinds
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec

NAME = "exaone4"
FULL_EVERY = 4
WINDOW = "sliding_window"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens, layers = config.integer("max_position_embeddings", 2048), layer_count(config)
    attention = attention_from_config(
        config,
        kv_heads=32,
        rope=rope_from_config(config, context_tokens),
    )
    has_windows = not config.has(WINDOW) or config.raw(WINDOW) is not None
    kinds = layer_types(config, _default_kinds(config, layers) if has_windows else [FULL] * layers)
    window_tokens = window_from_config(config, context_tokens)
    return model_from_config(
        config,
        NAME,
        _layers(attention, feed_forward_from_config(config), kinds, window_tokens, plain_full=has_windows),
        context_tokens,
        norm_epsilon=1e-5,
    )


def _default_kinds(config: ConfigFields, layers: int) -> list[str]:
    """By `sliding_window_pattern`: every so many layers a full one, or a letter for each of a group, G for full."""
    if config.raw("layer_types") is not None:
        return []
    pattern = config.raw("sliding_window_pattern")
    if not isinstance(pattern, str):
        return every_nth_full(layers, config.integer("sliding_window_pattern", FULL_EVERY))
    if not pattern or not set(pattern) <= set("LG"):
        raise config.wrong("sliding_window_pattern", "a number, or letters L and G")
    return [FULL if pattern[layer % len(pattern)] == "G" else SLIDING for layer in range(layers)]


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    window_tokens = window_from_gguf(gguf)
    kinds = every_nth_full(layer_count_of_gguf(gguf), FULL_EVERY if window_tokens else 0)
    attention, feed_forward = attention_from_gguf(gguf), feed_forward_from_gguf(gguf)
    return model_from_gguf(
        gguf, NAME, _layers(attention, feed_forward, kinds, window_tokens, plain_full=window_tokens > 0)
    )


def _layers(
    attention: AttentionSpec,
    feed_forward: FeedForwardSpec,
    kinds: Sequence[str],
    window_tokens: int,
    *,
    plain_full: bool,
) -> list[LayerSpec]:
    """`plain_full`: the layers without a window are not rotated."""
    attention = replace(attention, qk_norm="heads")
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward, norms="after")
    full = replace(layer, mixer=replace(attention, rope=None)) if plain_full else layer
    sliding = replace(layer, mixer=replace(attention, window_tokens=window_tokens))
    return layers_of_kinds(kinds, full=full, sliding=sliding)


FAMILY = Family(model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf)
