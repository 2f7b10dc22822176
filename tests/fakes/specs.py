"""Descriptions of models whose layers are alike, or of two kinds: without and, from some layer on, with a window."""

from __future__ import annotations

from dataclasses import replace

from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.recurrent import RecurrentSpec
from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec


def decoder_spec(
    *,
    layers: int = 4,
    hidden: int = 64,
    intermediate: int = 96,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    vocabulary: int = 100,
    context_tokens: int = 256,
    theta: float = 1e4,
    qkv_bias: bool = False,
    tied_output: bool = True,
) -> ModelSpec:
    """A decoder of like layers."""
    attention = AttentionSpec(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        rope=RopeSpec(theta=theta),
        qkv_bias=qkv_bias,
    )
    layer = LayerSpec(mixer=attention, feed_forward=FeedForwardSpec(intermediate=intermediate))
    return ModelSpec.of(
        [layer] * layers,
        family="llama",
        hidden=hidden,
        vocabulary=vocabulary,
        context_tokens=context_tokens,
        norm_epsilon=1e-5,
        tied_output=tied_output,
    )


def of_layers(spec: ModelSpec, layers: list[LayerSpec]) -> ModelSpec:
    """The same ends around other layers."""
    return ModelSpec.of(
        layers,
        family=spec.family,
        hidden=spec.hidden,
        vocabulary=spec.vocabulary,
        context_tokens=spec.context_tokens,
        norm_epsilon=spec.norm_epsilon,
        tied_output=spec.tied_output,
    )


def hybrid(spec: ModelSpec, recurrent: RecurrentSpec, every: int = 2) -> ModelSpec:
    """The same model in which only the last of every so many layers has attention, and the others are recurrent."""
    layers = [spec.layer(index) for index in range(spec.layers)]
    return of_layers(
        spec,
        [layer if (n + 1) % every == 0 else replace(layer, mixer=recurrent) for n, layer in enumerate(layers)],
    )


def windowed(spec: ModelSpec, window_tokens: int, first_layer: int = 0) -> ModelSpec:
    """The same model with a window in `first_layer` and all after it."""
    layers = [spec.layer(index) for index in range(spec.layers)]
    return of_layers(
        spec,
        [
            replace(layer, mixer=replace(layer.attention, window_tokens=window_tokens if n >= first_layer else 0))
            for n, layer in enumerate(layers)
        ],
    )
