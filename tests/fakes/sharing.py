"""Descriptions of models whose last layers read the keys and values of earlier ones."""

from __future__ import annotations

from dataclasses import replace

from layerline.models.layer_kinds import FULL, SLIDING, with_shared_pages
from layerline.models.spec import ModelSpec
from tests.fakes.specs import of_layers


def sharing(spec: ModelSpec, shared: int, *, token_input: int = 0, window_tokens: int = 8) -> ModelSpec:
    """The same model, every other layer with a window, of which the last `shared` keep nothing."""
    kinds = [FULL if layer % 2 else SLIDING for layer in range(spec.layers)]
    layers = [spec.layer(index) for index in range(spec.layers)]
    mixers = [
        replace(layer.attention, window_tokens=window_tokens if kind == SLIDING else 0)
        for layer, kind in zip(layers, kinds, strict=True)
    ]
    made = with_shared_pages(mixers, kinds, shared)
    return of_layers(
        spec, [replace(layer, mixer=own, token_input=token_input) for layer, own in zip(layers, made, strict=True)]
    )
