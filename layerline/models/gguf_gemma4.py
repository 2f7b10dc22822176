"""The model that a GGUF file of Gemma 4 describes, whose layers differ in more than most files can say.

Source: `llama_model_gemma4` of llama.cpp and `Gemma4Model` of its converter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from layerline.models.feed_forward_spec import ExpertsSpec, FeedForwardSpec
from layerline.models.gguf_fields import (
    GgufModel,
    check_gguf,
    integers_by_layer,
    layer_count_of_gguf,
    model_from_gguf,
    window_from_gguf,
)
from layerline.models.layer_kinds import FULL, SLIDING, with_shared_pages
from layerline.models.rope_spec import LARGEST_ROTARY, SMALLEST_ROTARY, RopeSpec
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec

STANDING = 1e30  # what the frequency of a pair that is not turned is divided by
THETA, THETA_IN_WINDOWS = 1000000.0, 10000.0


def model_of_gguf(gguf: GgufModel, family: str) -> ModelSpec:
    """The model; ModelUnsupportedError for what is not described here, by name."""
    check_gguf(gguf, experts=True, by_layer=True)
    if gguf.metadata.raw(gguf.key("rope.scaling.type")) not in (None, "none"):
        raise gguf.unsupported("a rope scaling beside rope_freqs.weight")
    layers = layer_count_of_gguf(gguf)
    sliding = _sliding(gguf, layers)
    kv_heads = integers_by_layer(gguf, "attention.head_count_kv", layers)
    widths = integers_by_layer(gguf, "feed_forward_length", layers)
    mixers = [_attention(gguf, layer, kv_heads[layer], is_sliding=sliding[layer]) for layer in range(layers)]
    shared_key = "attention.shared_kv_layers"
    shared = gguf.integer(shared_key, 0)
    try:
        sharing = with_shared_pages(mixers, [SLIDING if each else FULL for each in sliding], shared)
    except ValueError as error:
        raise gguf.metadata.wrong(gguf.key(shared_key), str(error)) from error
    return model_from_gguf(
        gguf,
        family,
        [
            LayerSpec(
                mixer=sharing[layer],
                feed_forward=_feed_forward(gguf, layer, widths[layer]),
                norms="around",
                output_scale=f"blk.{layer}.layer_output_scale.weight" in gguf.tensors,
                token_input=gguf.integer("embedding_length_per_layer_input", 0),
            )
            for layer in range(layers)
        ],
        embedding_scale=math.sqrt(gguf.integer("embedding_length")),
        logit_cap=gguf.number("final_logit_softcapping", 0.0) if _says(gguf, "final_logit_softcapping") else 0.0,
    )


def _says(gguf: GgufModel, name: str) -> bool:
    return gguf.metadata.raw(gguf.key(name)) is not None


def _sliding(gguf: GgufModel, layers: int) -> Sequence[bool]:
    key = gguf.key("attention.sliding_window_pattern")
    sliding = gguf.metadata.list_of(bool, key)
    if len(sliding) != layers:
        raise gguf.metadata.wrong(key, "true or false for each layer")
    return sliding


def _attention(gguf: GgufModel, layer: int, kv_heads: int, *, is_sliding: bool) -> AttentionSpec:
    ending = "_swa" if is_sliding else ""
    head_dim = gguf.integer(f"attention.key_length{ending}")
    if gguf.integer(f"attention.value_length{ending}", head_dim) != head_dim:
        raise gguf.unsupported("values and keys of unlike length")
    if gguf.integer(f"rope.dimension_count{ending}", head_dim) != head_dim:
        raise gguf.unsupported("rotary embedding of a part of each head")
    return AttentionSpec(
        heads=gguf.integer("attention.head_count"),
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        rope=_rope_in_windows(gguf) if is_sliding else _rope(gguf, head_dim),
        qk_norm="heads",
        scale=1.0,
        value_norm=True,
        keys_as_values=f"blk.{layer}.attn_v.weight" not in gguf.tensors,
        window_tokens=window_from_gguf(gguf) if is_sliding else 0,
    )


def _rope_in_windows(gguf: GgufModel) -> RopeSpec:
    key = gguf.key("rope.freq_base_swa")
    return RopeSpec(theta=gguf.metadata.between(key, SMALLEST_ROTARY, LARGEST_ROTARY, THETA_IN_WINDOWS))


def _rope(gguf: GgufModel, head_dim: int) -> RopeSpec:
    """That of full layers: rope_freqs.weight divides the frequencies of pairs that stand still by a huge number."""
    factors = gguf.rope_tensors.factors
    turned = 0 if factors is None else sum(factor == 1.0 for factor in factors)
    if factors is None or not turned or list(factors[turned:]) != [max(factors)] * (len(factors) - turned):
        raise gguf.unsupported("full layers without a rope_freqs.weight that tells which pairs are turned")
    if len(factors) != head_dim // 2 or (turned < len(factors) and max(factors) < STANDING / 2):
        raise gguf.unsupported("a rope_freqs.weight that is not that of Gemma 4")
    theta = gguf.metadata.between(gguf.key("rope.freq_base"), SMALLEST_ROTARY, LARGEST_ROTARY, THETA)
    return RopeSpec(theta=theta, rotated=2 * turned % head_dim, scaling="proportional")


def _feed_forward(gguf: GgufModel, layer: int, width: int) -> FeedForwardSpec:
    """Experts are beside the dense one in layers that have a router."""
    dense = FeedForwardSpec(intermediate=width, activation="gelu_tanh")
    if f"blk.{layer}.ffn_gate_inp.weight" not in gguf.tensors:
        return dense
    experts = ExpertsSpec(
        count=gguf.integer("expert_count"),
        chosen=gguf.integer("expert_used_count"),
        scoring="softmax",
        normalised=True,
        shared_intermediate=width,
        apart=True,
        expert_scales=f"blk.{layer}.ffn_down_exps.scale" in gguf.tensors,
    )
    return replace(dense, intermediate=gguf.integer("expert_feed_forward_length"), experts=experts)
