"""Reading a config.json as transformers 5 does: what several families have in common.

What the spec cannot express is refused by name, never ignored. Fields that the family's model does not look at in
transformers are not looked at here.

Source: `configuration_utils.py` and `modeling_rope_utils.py` of transformers 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from layerline.errors import ModelUnsupportedError
from layerline.models.feed_forward_spec import Activation, FeedForwardSpec
from layerline.models.fields import Fields
from layerline.models.layer_kinds import FULL, SLIDING
from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec, NormKind
from layerline.plan import MAX_LAYERS

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}


class ConfigFields(Fields):
    """Fields of which one that is null is not the same as one that is missing."""

    def nullable_integer(self, key: str, *, missing: int, null: int) -> int:
        """The whole number called `key`, where null has a meaning."""
        if self.has(key) and self.raw(key) is None:
            return null
        return self.integer(key, missing)

    def nullable_number(self, key: str, default: float | None) -> float:
        """The number over 0 called `key`; 0 if it is null, or missing and without a default."""
        missing = self.raw(key) is None and (self.has(key) or default is None)
        return 0.0 if missing else self.positive(key, default)

    def _get(self, key: str, default: object) -> object:
        return self.raw(key) if self.has(key) else super()._get(key, default)


def unsupported(fields: Fields, feature: str) -> ModelUnsupportedError:
    """The error for a model that asks for `feature`."""
    return ModelUnsupportedError(f"{fields.where} asks for {feature}, which layerline cannot do.")


def check_config(config: ConfigFields, *refused_flags: str, may_differ: bool = False) -> None:
    """Refuses what no family here has; of the family's own fields `refused_flags` must not be true.

    A config of any family may say fields of single layers, which must be looked at (`may_differ`) or refused.
    """
    for flag in refused_flags:
        if config.raw(flag) is not None and config.flag(flag, False):
            raise unsupported(config, flag)
    if config.raw("per_layer_config") and not may_differ:
        raise unsupported(config, "fields that differ from layer to layer (per_layer_config)")
    if not config.flag("is_causal", True):
        raise unsupported(config, "attention that is not causal (is_causal)")


def head_dim_from_config(config: ConfigFields, missing: int | None = None) -> int:
    """Numbers of a head: `missing` if the config does not say; where neither does, heads share the hidden size."""
    shared = config.integer("hidden_size") // max(config.integer("num_attention_heads"), 1)
    return config.nullable_integer("head_dim", missing=shared if missing is None else missing, null=shared)


def attention_from_config(
    config: ConfigFields,
    *,
    rope: RopeSpec | None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    qkv_bias: bool = False,
) -> AttentionSpec:
    """Attention without a window. `kv_heads` and `head_dim` are those of a config that does not say.

    If they are None, or null in the config, each head has keys and values of its own, and all share the hidden size.
    """
    heads, size = config.integer("num_attention_heads"), head_dim_from_config(config, head_dim)
    missing = heads if kv_heads is None else kv_heads
    return AttentionSpec(
        heads=heads,
        kv_heads=config.nullable_integer("num_key_value_heads", missing=missing, null=heads),
        head_dim=size,
        value_dim=size,
        rope=rope,
        qkv_bias=qkv_bias,
    )


def feed_forward_from_config(
    config: ConfigFields, *, activation: str = "hidden_act", default: str = "silu", bias: bool = False
) -> FeedForwardSpec:
    """A dense feed-forward, whose activation the config calls `activation`."""
    named = config.text(activation, default)
    if named not in _ACTIVATIONS:
        raise unsupported(config, f"{activation} {named!r}")
    return FeedForwardSpec(intermediate=config.integer("intermediate_size"), activation=_ACTIVATIONS[named], bias=bias)


def model_from_config(
    config: ConfigFields,
    family: str,
    layers: Sequence[LayerSpec],
    context_tokens: int,
    *,
    epsilon: str = "rms_norm_eps",
    norm_epsilon: float = 1e-6,
    tied_output: bool = False,
    norm: NormKind = "rms",
    embedding_scale: float = 1.0,
    logit_scale: float = 1.0,
    logit_cap: float = 0.0,
) -> ModelSpec:
    """The model of these layers, whose norms have what the config calls `epsilon`."""
    return ModelSpec.of(
        layers,
        family=family,
        hidden=config.integer("hidden_size"),
        vocabulary=config.integer("vocab_size"),
        context_tokens=context_tokens,
        norm_epsilon=config.positive(epsilon, norm_epsilon),
        tied_output=config.flag("tie_word_embeddings", tied_output),
        norm=norm,
        embedding_scale=embedding_scale,
        logit_scale=logit_scale,
        logit_cap=logit_cap,
    )


def layer_types(config: ConfigFields, default: Sequence[str], other: str = SLIDING) -> list[str]:
    """FULL or `other` for each layer; `default` if the config says nothing."""
    if config.raw("layer_types") is None:
        return list(default)
    kinds = config.list_of(str, "layer_types")
    if len(kinds) != layer_count(config) or not set(kinds) <= {FULL, other}:
        raise unsupported(config, f"layer_types other than {FULL} or {other} for each layer")
    return kinds


def layer_count(config: ConfigFields) -> int:
    """How many layers there are, checked before anything is made for each."""
    layers = config.integer("num_hidden_layers")
    if not 0 < layers <= MAX_LAYERS:
        raise config.wrong("num_hidden_layers", f"from 1 to {MAX_LAYERS}")
    return layers


def window_from_config(config: ConfigFields, context_tokens: int, *, missing: int = 4096) -> int:
    """The size of the sliding window, `missing` if it is not said; 0 if there is none, or it is the whole context."""
    if not config.has("sliding_window") and not missing:
        return 0
    if config.has("sliding_window") and config.raw("sliding_window") is None:
        return 0
    window_tokens = config.integer("sliding_window", missing)
    if window_tokens <= 0:
        raise unsupported(config, f"a sliding_window of {window_tokens} tokens")
    return window_tokens if window_tokens < context_tokens else 0


def windows_by_layer(config: ConfigFields, context_tokens: int) -> list[int]:
    """The window of each layer where `use_sliding_window` switches them on, in `layer_types` or after the first few."""
    layers, switched_on = layer_count(config), config.flag("use_sliding_window", False)
    window_tokens = window_from_config(config, context_tokens) if switched_on else 0
    if config.raw("layer_types") is None:
        first = config.integer("max_window_layers", 28)
        return [window_tokens if layer >= first else 0 for layer in range(layers)]
    kinds = layer_types(config, ())
    has_size = switched_on and not (config.has("sliding_window") and config.raw("sliding_window") is None)
    if SLIDING in kinds and not has_size:
        raise unsupported(config, f"layer_types with {SLIDING} but without a window")
    return [window_tokens if kind == SLIDING else 0 for kind in kinds]
