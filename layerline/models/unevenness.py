"""What could not be split between ranks in proportion, in words."""

from __future__ import annotations

from collections.abc import Sequence

from layerline.models.model_parts import LayerPart, ModelPart
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec

TOLERATED = 1.05  # a rank with so many times its due is not worth mention


def unevenness(model: ModelSpec, parts: Sequence[ModelPart], weights: Sequence[int] = ()) -> str:
    """One sentence on what could not be split in proportion, for each kind of layer; empty if all was."""
    weights = tuple(weights) or (1,) * len(parts)
    sentences = [
        _unevenness(kind, [part.kinds[place] for part in parts], weights) for place, kind in enumerate(model.kinds)
    ]
    return " ".join(sentence for sentence in dict.fromkeys(sentences) if sentence)


def _unevenness(layer: LayerSpec, parts: Sequence[LayerPart], weights: Sequence[int]) -> str:
    mixer, intermediate = layer.mixer, layer.feed_forward.intermediate
    heads, columns = [len(part.heads) for part in parts], [len(part.intermediate) for part in parts]
    repeated = sum(len(part.kv_heads) for part in parts) > mixer.kv_heads
    sentences = []
    if repeated or not _is_even(heads, weights):
        groups = "1 group" if mixer.kv_heads == 1 else f"{mixer.kv_heads} groups"
        whose = "attention" if isinstance(mixer, AttentionSpec) else "recurrent"
        sentence = f"The {mixer.heads} {whose} heads in {groups} are split {_sum_of(heads)}"
        held = f"{_sum_of([len(part.kv_heads) for part in parts])} key/value heads"
        held = "the whole latent on each" if isinstance(mixer, AttentionSpec) and mixer.latent else held
        sentences.append(f"{sentence}, with {held}." if repeated else f"{sentence}.")
    if not _is_even(columns, weights):
        sentences.append(f"The {intermediate} columns of the feed-forward are split {_sum_of(columns)}.")
    return " ".join(sentences)


def _is_even(sizes: Sequence[int], weights: Sequence[int]) -> bool:
    """Whether none is much more than its due."""
    dues = (sum(sizes) * weight / sum(weights) for weight in weights)
    return all(size <= TOLERATED * due for size, due in zip(sizes, dues, strict=True))


def _sum_of(sizes: Sequence[int]) -> str:
    return " + ".join(map(str, sizes))
