"""Reading layers with a gated delta net, and gated attention beside them, as Qwen's config.json says them."""

from __future__ import annotations

from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    layer_count,
    layer_types,
    unsupported,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.layer_kinds import FULL, LINEAR
from layerline.models.recurrent import DeltaNetSpec
from layerline.models.spec import AttentionSpec, LayerSpec

CONTEXT_TOKENS, HEAD_DIM = 1 << 15, 256  # of a config that does not say it
TURNED = {"partial_rotary_factor": 0.25}
_INTERVAL = "full_attention_interval"
_SILU = ("silu", "swish")


def hybrid_layers(config: ConfigFields, feed_forwards: list[FeedForwardSpec], *, kv_heads: int) -> list[LayerSpec]:
    """A layer for each feed-forward; `kv_heads` are those of a config that does not say."""
    check_config(config)
    attention, delta_net = _gated_attention(config, kv_heads), _delta_net(config)
    return [
        LayerSpec(mixer=attention if kind == FULL else delta_net, feed_forward=feed_forward)
        for kind, feed_forward in zip(_kinds(config), feed_forwards, strict=True)
    ]


def context_from_config(config: ConfigFields) -> int:
    """Positions for which the model was trained."""
    return config.integer("max_position_embeddings", CONTEXT_TOKENS)


def _kinds(config: ConfigFields) -> list[str]:
    interval = config.integer(_INTERVAL, 4)
    if interval <= 0:
        raise config.wrong(_INTERVAL, "1 or more")
    usual = [LINEAR if (layer + 1) % interval else FULL for layer in range(layer_count(config))]
    return layer_types(config, usual, other=LINEAR)


def _gated_attention(config: ConfigFields, kv_heads: int) -> AttentionSpec:
    turned = config.with_missing(TURNED)
    attention = attention_from_config(config, kv_heads=kv_heads, head_dim=HEAD_DIM, rope=None)
    return replace(
        attention,
        rope=rope_from_config(turned, context_from_config(config), head_dim=attention.head_dim),
        qkv_bias=config.flag("attention_bias", False),
        output_bias=config.flag("attention_bias", False),
        qk_norm="heads",
        output_gate=True,
    )


def _delta_net(config: ConfigFields) -> DeltaNetSpec:
    """What the convolution gives goes through the activation of the feed-forward."""
    activation = config.text("hidden_act", "silu")
    if activation not in _SILU:
        raise unsupported(config, f"a delta net with hidden_act {activation!r}")
    return DeltaNetSpec(
        value_heads=config.integer("linear_num_value_heads", 32),
        key_heads=config.integer("linear_num_key_heads", 16),
        key_dim=config.integer("linear_key_head_dim", 128),
        value_dim=config.integer("linear_value_head_dim", 128),
        taps=config.integer("linear_conv_kernel_dim", 4),
    )
