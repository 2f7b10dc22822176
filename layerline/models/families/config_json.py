"""From a config.json to a ModelSpec. What the spec cannot express is refused by name, never ignored.

Field names and defaults: `LlamaConfig` and its kin in the transformers library.
"""

from __future__ import annotations

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.families.family import Family
from layerline.models.fields import REMEDY, Fields
from layerline.models.spec import AttentionSpec, FeedForwardSpec, LayerSpec, ModelSpec, RopeSpec
from layerline.plan import MAX_LAYERS

_KNOWN_ACTIVATIONS = ("silu", "swish")


def spec_from_config(family: Family, config: Fields) -> ModelSpec:
    """The spec that `config` describes."""
    _refuse_unknown(family, config)
    layers, (window_tokens, first_windowed_layer) = config.integer("num_hidden_layers"), _window(family, config)
    if not 0 < layers <= MAX_LAYERS:
        raise config.wrong("num_hidden_layers", f"from 1 to {MAX_LAYERS}")
    try:
        unlimited, windowed = (_layer(family, config, window) for window in (0, window_tokens))
        return ModelSpec.of(
            [unlimited] * first_windowed_layer + [windowed] * (layers - first_windowed_layer),
            family=family.name,
            hidden=config.integer("hidden_size"),
            vocabulary=config.integer("vocab_size"),
            context_tokens=config.integer("max_position_embeddings", 2048),
            norm_epsilon=config.positive("rms_norm_eps", 1e-6),
            tied_output=config.flag("tie_word_embeddings", False),
        )
    except ValueError as error:
        raise ModelCorruptError(f"{config.where}: {error}.", remedy=REMEDY) from error


def _layer(family: Family, config: Fields, window_tokens: int) -> LayerSpec:
    heads = config.integer("num_attention_heads")
    head_dim = config.integer("head_dim", config.integer("hidden_size") // max(heads, 1))
    return LayerSpec(
        attention=AttentionSpec(
            heads=heads,
            kv_heads=config.integer("num_key_value_heads", heads),
            head_dim=head_dim,
            value_dim=head_dim,
            rope=_rope(config),
            qkv_bias=family.qkv_bias,
            window_tokens=window_tokens,
        ),
        feed_forward=FeedForwardSpec(intermediate=config.integer("intermediate_size")),
    )


def _refuse_unknown(family: Family, config: Fields) -> None:
    activation = config.text("hidden_act", "silu")
    if activation not in _KNOWN_ACTIVATIONS:
        raise _unsupported(config, f"hidden_act {activation!r}")
    for flag in family.refused_flags:
        if config.flag(flag, False):
            raise _unsupported(config, flag)
    if config.number("partial_rotary_factor", 1.0) != 1.0:
        raise _unsupported(config, "partial_rotary_factor")
    if "quantization_config" in config:
        raise _unsupported(config, "quantization_config")


def _window(family: Family, config: Fields) -> tuple[int, int]:
    """The window and the first layer that has it; zeros if it is as long as the context, or if no layer has it."""
    layers = config.integer("num_hidden_layers")
    switched_on = not family.window_flag or config.flag(family.window_flag, False)
    window_tokens = config.integer("sliding_window", 0) if switched_on else 0
    first_layer = _first_windowed_layer(config, layers, switched_on)
    if window_tokens <= 0 or first_layer >= layers:
        return 0, 0
    if window_tokens >= config.integer("max_position_embeddings", 2048):
        return 0, 0
    if not family.windows:
        raise _unsupported(config, "a sliding window")
    return window_tokens, first_layer


def _first_windowed_layer(config: Fields, layers: int, switched_on: bool) -> int:
    kinds = config.list_of(str, "layer_types", ())
    if not kinds:
        return config.integer("max_window_layers", 0)
    full = kinds.count("full_attention")
    if kinds != ["full_attention"] * full + ["sliding_attention"] * (layers - full):
        raise _unsupported(config, "layer_types other than full_attention and, after all of these, sliding_attention")
    if full < layers and not (switched_on and "sliding_window" in config):
        raise _unsupported(config, "layer_types with sliding_attention but without a window")
    return full


def _rope(config: Fields) -> RopeSpec:
    """Rotary settings, in the place of transformers 5 (rope_parameters) or of earlier ones."""
    section = config.section("rope_parameters" if "rope_parameters" in config else "rope_scaling")
    theta = section.positive("rope_theta", config.positive("rope_theta", 10000.0))
    kind = section.text("rope_type", section.text("type", "default"))
    if kind == "default":
        return RopeSpec(theta=theta)
    if kind == "linear":
        return RopeSpec(theta=theta, scaling="linear", factor=section.positive("factor"))
    if kind == "llama3":
        return _llama3_rope(theta, section)
    raise _unsupported(config, f"rope scaling {kind!r} (it knows linear and llama3)")


def _llama3_rope(theta: float, section: Fields) -> RopeSpec:
    low, high = section.positive("low_freq_factor"), section.positive("high_freq_factor")
    if low >= high:
        raise section.wrong("high_freq_factor", "more than low_freq_factor")
    return RopeSpec(
        theta=theta,
        scaling="llama3",
        factor=section.positive("factor"),
        low_frequency_factor=low,
        high_frequency_factor=high,
        original_context_tokens=int(section.positive("original_max_position_embeddings")),
    )


def _unsupported(config: Fields, feature: str) -> ModelUnsupportedError:
    return ModelUnsupportedError(f"{config.where} asks for {feature}, which layerline cannot do.")
