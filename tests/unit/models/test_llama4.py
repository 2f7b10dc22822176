"""What Llama 4 makes of configs that leave things out or say them otherwise, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.config_fields import ConfigFields
from layerline.models.families.llama4_text import FAMILY
from layerline.models.feed_forward_spec import ExpertsSpec
from layerline.models.fields import Fields
from layerline.models.gguf_fields import GgufModel
from layerline.models.gguf_rope import RopeTensors
from layerline.models.query_growth import QueryGrowth
from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec
from tests.fakes.made_models import GGUF_SIZES, LAYERS, SIZES

LONG = 1 << 15
CONFIG: dict[str, object] = {**SIZES, "model_type": "llama4_text", "max_position_embeddings": LONG}
DENSE: dict[str, object] = {"moe_layers": []}
METADATA: dict[str, object] = {
    **GGUF_SIZES,
    "context_length": LONG,
    "expert_count": 16,
    "expert_used_count": 1,
    "expert_feed_forward_length": 40,
}
ROUTERS = frozenset(f"blk.{layer}.ffn_gate_inp.weight" for layer in (1, 3))
GROWTH = QueryGrowth(factor=0.1, length=8192, offset=1)
PLAIN = AttentionSpec(heads=4, kv_heads=2, head_dim=16, value_dim=16, rope=RopeSpec(theta=1e4))


def from_config(config: Mapping[str, object]) -> list[LayerSpec]:
    return layers_of(FAMILY.from_config(ConfigFields({**CONFIG, **config}, "config.json")))


def from_gguf(metadata: Mapping[str, object]) -> list[LayerSpec]:
    values = {f"llama4.{key}": value for key, value in {**METADATA, **metadata}.items()}
    fields = Fields({**values, "tokenizer.ggml.tokens": ["a", "b"]}, "model.gguf")
    assert FAMILY.from_gguf is not None
    return layers_of(
        FAMILY.from_gguf(GgufModel(metadata=fields, architecture="llama4", tensors=ROUTERS, rope_tensors=RopeTensors()))
    )


def layers_of(spec: ModelSpec) -> list[LayerSpec]:
    return [spec.layer(index) for index in range(spec.layers)]


def test_a_config_that_says_nothing_has_chunks_but_in_every_fourth_layer() -> None:
    """What sees all is not rotated, not normed, and has queries that grow."""
    attentions = [layer.attention for layer in from_config({})]
    assert [own.chunk_tokens for own in attentions] == [8192, 8192, 8192, 0]
    assert [own.qk_norm for own in attentions] == [*["turned_heads"] * 3, "none"]
    assert [own.query_growth for own in attentions] == [None, None, None, GROWTH]
    assert [own.rope for own in attentions] == [*[RopeSpec(theta=500000.0, interleaved=True)] * 3, None]


def test_every_layer_has_experts_beside_a_shared_one_if_nothing_is_said() -> None:
    experts = ExpertsSpec(count=16, chosen=1, scoring="sigmoid_of_chosen", weighs_input=True, shared_intermediate=96)
    assert [layer.feed_forward.experts for layer in from_config({})] == [experts] * LAYERS


@pytest.mark.parametrize(
    ("config", "widths"),
    [
        ({"interleave_moe_layer_step": 2, "intermediate_size_mlp": 72}, [(72,), (96, 96), (72,), (96, 96)]),
        ({"moe_layers": [0], "interleave_moe_layer_step": 0}, [(96, 96), (16384,), (16384,), (16384,)]),
        ({"moe_layers": [], "num_local_experts": 0}, [(16384,)] * LAYERS),
    ],
)
def test_dense_layers_have_a_width_of_their_own(config: dict[str, object], widths: list[tuple[int, ...]]) -> None:
    assert [layer.feed_forward.widths for layer in from_config(config)] == widths


@pytest.mark.parametrize(
    ("config", "chunks"),
    [
        ({"attention_chunk_size": None}, [0, 0, 0, 0]),
        ({"attention_chunk_size": LONG}, [0, 0, 0, 0]),
        ({"no_rope_layers": []}, [8192, 8192, 8192, 0]),
        ({"no_rope_layers": [0, 1, 0, 1, 1, 1]}, [0, 8192, 0, 8192]),
        ({"no_rope_layer_interval": 2}, [8192, 0, 8192, 0]),
        ({"layer_types": ["full_attention"] * 3 + ["chunked_attention"]}, [0, 0, 0, 8192]),
    ],
)
def test_the_chunks_of_each_layer(config: dict[str, object], chunks: list[int]) -> None:
    assert [layer.attention.chunk_tokens for layer in from_config(config)] == chunks


@pytest.mark.parametrize(
    ("config", "growth"),
    [
        ({"attn_temperature_tuning": 4}, GROWTH),
        ({"attn_temperature_tuning": 0}, None),
        ({"attn_temperature_tuning": False}, None),
        ({"attn_scale": 0.0}, None),
        ({"attn_scale": 0.3, "floor_scale": 64}, QueryGrowth(factor=0.3, length=64, offset=1)),
    ],
)
def test_queries_grow_where_that_is_switched_on(config: dict[str, object], growth: QueryGrowth | None) -> None:
    assert from_config(config)[3].attention.query_growth == growth


@pytest.mark.parametrize(
    ("config", "feature"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types other than"),
        ({"layer_types": ["sliding_attention"] * LAYERS}, "layer_types other than full_attention or chunked_attention"),
        (
            {"layer_types": ["chunked_attention"] * LAYERS, "attention_chunk_size": None},
            "layer_types with chunked_attention but without attention_chunk_size",
        ),
        ({"no_rope_layers": [1]}, "no_rope_layers for 1 of 4 layers"),
        ({"hidden_act": "relu"}, "hidden_act 'relu'"),
    ],
)
def test_unsupported_configs(config: dict[str, object], feature: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=feature):
        from_config(config)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"attention_chunk_size": 0}, "attention_chunk_size must be at least 1"),
        ({"attention_chunk_size": -8}, "attention_chunk_size must be at least 1"),
        ({"interleave_moe_layer_step": 0}, "interleave_moe_layer_step must be at least 1"),
        ({"attn_temperature_tuning": "yes"}, "attn_temperature_tuning must be true or false"),
        ({"attn_scale": -0.1}, "attn_scale must be a positive number"),
    ],
)
def test_configs_that_cannot_be(config: dict[str, object], reason: str) -> None:
    with pytest.raises(ModelCorruptError, match=reason):
        from_config(config)


def test_what_a_gguf_leaves_to_llama_cpp() -> None:
    layers = from_gguf({"attention.sliding_window": 8192})
    assert layers == from_gguf({})
    assert [own.attention.chunk_tokens for own in layers] == [8192, 8192, 8192, 0]
    assert [own.attention.query_growth for own in layers] == [None, None, None, GROWTH]
    assert [own.attention.qk_norm for own in layers] == [*["turned_heads"] * 3, "none"]
    assert [own.feed_forward.widths for own in layers] == [(96,), (40, 40)] * 2
    assert [own.attention.qk_norm for own in from_gguf({"expert_count": 128})] == ["none"] * LAYERS


@pytest.mark.parametrize(
    "metadata",
    [
        {"attention.sliding_window": 0},
        {"attention.sliding_window": 4096},
        {"attention.sliding_window_pattern": 2},
        {"rope.freq_base_swa": 5e5},
        {"expert_gating_func": 1},
    ],
)
def test_unsupported_metadata(metadata: dict[str, object]) -> None:
    (key,) = metadata
    with pytest.raises(ModelUnsupportedError, match=key.replace(".", r"\.")):
        from_gguf(metadata)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"chunk_tokens": -1}, "chunk_tokens out of range"),
        ({"chunk_tokens": 8, "window_tokens": 8}, "a window beside chunks"),
        ({"qk_norm": "turned_heads", "rope": None}, "rotated heads that are not rotated"),
    ],
)
def test_attention_that_cannot_be(changes: dict[str, Any], reason: str) -> None:
    assert replace(PLAIN, chunk_tokens=8, qk_norm="turned_heads").chunk_tokens == 8
    with pytest.raises(ValueError, match=reason):
        replace(PLAIN, **changes)


@pytest.mark.parametrize(
    ("changes", "reason"), [({"factor": 0.0}, "growth"), ({"length": 0}, "length"), ({"offset": -1}, "offset")]
)
def test_growth_that_cannot_be(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(GROWTH, **changes)


def test_no_page_is_left_out_of_a_model_with_chunks() -> None:
    """A chunk is no window, whose length would say how far back each row looks."""
    spec = FAMILY.from_config(ConfigFields({**CONFIG, "no_rope_layers": [1] * LAYERS}, "config.json"))
    assert spec.reach_tokens == 0
    with pytest.raises(ValueError, match="chunk_tokens out of range"):
        replace(spec, context_tokens=8192)
