"""From GGUF metadata to a ModelSpec. What the spec cannot express is refused by name, never ignored.

Key names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.families.family import Family
from layerline.models.families.rope_factors import llama3_from_factors
from layerline.models.fields import REMEDY, Fields
from layerline.models.spec import AttentionSpec, FeedForwardSpec, LayerSpec, ModelSpec, RopeSpec
from layerline.plan import MAX_LAYERS


def spec_from_gguf(
    family: Family, metadata: Fields, *, tied_output: bool, rope_factors: NDArray[np.float32] | None
) -> ModelSpec:
    """The spec that `metadata` describes; `rope_factors` is the file's tensor rope_freqs.weight, if it has one."""
    prefix = family.gguf_architecture
    _refuse_unknown(prefix, metadata)
    layers = metadata.integer(f"{prefix}.block_count")
    if not 0 < layers <= MAX_LAYERS:
        raise metadata.wrong(f"{prefix}.block_count", f"from 1 to {MAX_LAYERS}")
    try:
        return ModelSpec.of(
            [_layer(family, metadata, rope_factors)] * layers,
            family=family.name,
            hidden=metadata.integer(f"{prefix}.embedding_length"),
            vocabulary=len(metadata.list_of(str, "tokenizer.ggml.tokens")),
            context_tokens=metadata.integer(f"{prefix}.context_length"),
            norm_epsilon=metadata.positive(f"{prefix}.attention.layer_norm_rms_epsilon"),
            tied_output=tied_output,
        )
    except ValueError as error:
        raise ModelCorruptError(f"{metadata.where}: {error}.", remedy=REMEDY) from error


def _layer(family: Family, metadata: Fields, rope_factors: NDArray[np.float32] | None) -> LayerSpec:
    prefix = family.gguf_architecture
    heads, hidden = metadata.integer(f"{prefix}.attention.head_count"), metadata.integer(f"{prefix}.embedding_length")
    head_dim = metadata.integer(f"{prefix}.attention.key_length", hidden // max(heads, 1))
    _require_same(metadata, f"{prefix}.attention.value_length", head_dim, "values and keys of unlike length")
    _require_same(metadata, f"{prefix}.rope.dimension_count", head_dim, "rotary embedding of a part of each head")
    return LayerSpec(
        attention=AttentionSpec(
            heads=heads,
            kv_heads=metadata.integer(f"{prefix}.attention.head_count_kv", heads),
            head_dim=head_dim,
            value_dim=head_dim,
            rope=_rope(prefix, metadata, head_dim, rope_factors),
            qkv_bias=family.qkv_bias,
            window_tokens=_window(family, metadata),
        ),
        feed_forward=FeedForwardSpec(intermediate=metadata.integer(f"{prefix}.feed_forward_length")),
    )


def _refuse_unknown(prefix: str, metadata: Fields) -> None:
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        if isinstance(metadata.raw(f"{prefix}.{key}"), list):
            raise _unsupported(metadata, f"{key} that differs from layer to layer")
    if metadata.integer(f"{prefix}.expert_count", 0) > 0:
        raise _unsupported(metadata, "a mixture of experts")


def _window(family: Family, metadata: Fields) -> int:
    """The window of all layers, 0 if it is as long as the context."""
    prefix = family.gguf_architecture
    window_tokens = metadata.integer(f"{prefix}.attention.sliding_window", 0)
    if not 0 < window_tokens < metadata.integer(f"{prefix}.context_length"):
        return 0
    if family.window_flag:
        raise _unsupported(metadata, "a sliding window without saying in which layers")
    return window_tokens


def _require_same(metadata: Fields, key: str, wanted: int, otherwise: str) -> None:
    if metadata.integer(key, wanted) != wanted:
        raise _unsupported(metadata, otherwise)


def _rope(prefix: str, metadata: Fields, head_dim: int, factors: NDArray[np.float32] | None) -> RopeSpec:
    theta = metadata.positive(f"{prefix}.rope.freq_base", 10000.0)
    kind = metadata.text(f"{prefix}.rope.scaling.type", "none")
    factor = metadata.positive(f"{prefix}.rope.scaling.factor", metadata.positive(f"{prefix}.rope.scale_linear", 1.0))
    if factors is not None and kind == "none":
        return llama3_from_factors(theta, head_dim, factors)
    if kind == "none" and factor == 1.0:
        return RopeSpec(theta=theta)
    if kind in ("none", "linear") and factors is None:
        return RopeSpec(theta=theta, scaling="linear", factor=factor)
    raise _unsupported(metadata, f"rope scaling {kind!r} (it knows linear and that of Llama 3)")


def _unsupported(metadata: Fields, feature: str) -> ModelUnsupportedError:
    return ModelUnsupportedError(f"{metadata.where} asks for {feature}, which layerline cannot do.")
