"""Models of two kinds of layers: full ones, in which a row sees all that is before it, and sliding or linear ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from layerline.models.spec import AttentionSpec, LayerSpec

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def every_nth_full(layers: int, nth: int) -> list[str]:
    """The kind of each layer: the last of every `nth` is a full one; with 0 all are."""
    return [SLIDING if nth and (layer + 1) % nth else FULL for layer in range(layers)]


def layers_of_kinds(kinds: Sequence[str], *, full: LayerSpec, sliding: LayerSpec) -> list[LayerSpec]:
    """A layer for each kind."""
    return [sliding if kind == SLIDING else full for kind in kinds]


def windowed_layers(layer: LayerSpec, kinds: Sequence[str], window_tokens: int) -> list[LayerSpec]:
    """The same layer for each kind, but for the window of sliding ones."""
    sliding = replace(layer, mixer=replace(layer.attention, window_tokens=window_tokens))
    return layers_of_kinds(kinds, full=layer, sliding=sliding)


def with_shared_pages(mixers: Sequence[AttentionSpec], kinds: Sequence[str], shared: int) -> list[AttentionSpec]:
    """The same, the last `shared` reading the keys and values of the last of the others that is of their kind.

    ValueError if there is none.
    """
    own = len(mixers) - shared
    sources = {kind: layer for layer, kind in enumerate(kinds[:own])}
    if not 0 < own <= len(mixers) or not set(kinds) <= set(sources):
        raise ValueError("so few that there is a layer of each kind whose keys and values the others read")
    reading = (
        replace(mixer, value_norm=False, keys_as_values=False, source=sources[kind])
        for mixer, kind in zip(mixers[own:], kinds[own:], strict=True)
    )
    return [*mixers[:own], *reading]
