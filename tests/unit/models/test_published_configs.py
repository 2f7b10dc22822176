"""What the configs of published models are read as."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from layerline.models.config_fields import ConfigFields
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.known_families import family_of_config
from layerline.models.query_growth import QueryGrowth
from layerline.models.recurrent import DeltaNetSpec, ShortConvSpec
from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import AttentionSpec, ModelSpec
from layerline.models.text_part import text_config
from tests.fakes.published_configs import (
    A4B,
    ATTENTION_OF_16,
    DENSE_31B,
    E2B,
    LFM2,
    LFM2_8B_A1B,
    MAVERICK,
    QWEN3_NEXT,
    SCOUT,
    gemma4,
    llama4,
    qwen3_5,
)


def spec_of(config: Mapping[str, object]) -> ModelSpec:
    fields = text_config(ConfigFields(config, "config.json"))
    return family_of_config(fields.text("model_type")).from_config(fields)


def width_of(feed_forward: FeedForwardSpec) -> int:
    return feed_forward.intermediate


@pytest.mark.parametrize("text", [SCOUT, MAVERICK], ids=["Scout", "Maverick"])
def test_llama4(text: dict[str, object]) -> None:
    spec, is_scout = spec_of(llama4(text)), text is SCOUT
    chunked, full = spec.layer(2).attention, spec.layer(3).attention
    assert (spec.layers, spec.hidden, spec.vocabulary, spec.norm_epsilon) == (48, 5120, 202048, 1e-5)
    assert not spec.tied_output
    assert [layer for layer in range(48) if spec.layer(layer).attention.rope is None] == list(range(3, 48, 4))
    assert (chunked.heads, chunked.kv_heads, chunked.head_dim, chunked.chunk_tokens) == (40, 8, 128, 8192)
    assert chunked.qk_norm == ("turned_heads" if is_scout else "none")
    assert chunked.query_growth is None
    assert chunked.rope is not None
    assert (chunked.rope.interleaved, chunked.rope.theta) == (True, 500000.0)
    assert (chunked.rope.scaling, chunked.rope.factor) == (("llama3", 16.0) if is_scout else ("none", 1.0))
    assert (full.chunk_tokens, full.qk_norm) == (0, "none")
    assert full.query_growth == QueryGrowth(factor=0.1, length=8192, offset=1)
    sparse = [layer for layer in range(48) if spec.layer(layer).feed_forward.experts is not None]
    assert sparse == list(range(48) if is_scout else range(1, 48, 2))
    experts = spec.layer(1).feed_forward.experts
    assert experts is not None
    assert (experts.count, experts.chosen, experts.shared_intermediate) == (16 if is_scout else 128, 1, 8192)
    assert (experts.scoring, experts.weighs_input, experts.normalised) == ("sigmoid_of_chosen", True, False)
    assert width_of(spec.layer(0).feed_forward) == (8192 if is_scout else 16384)


def sizes_of(attention: AttentionSpec) -> tuple[int, int, int, int]:
    return attention.heads, attention.kv_heads, attention.head_dim, attention.window_tokens


def test_gemma4_with_inputs_of_each_layer() -> None:
    spec = spec_of(gemma4(35, 5, E2B))
    assert (spec.token_input, spec.tied_output, spec.logit_cap) == (256, True, 30.0)
    assert spec.embedding_scale == pytest.approx(1536**0.5)
    assert sizes_of(spec.layer(0).attention) == (8, 1, 256, 512)
    assert sizes_of(spec.layer(4).attention) == (8, 1, 512, 0)
    assert [spec.layer(layer).source for layer in (13, 14, 15, 18, 19, 34)] == [None, None, 13, 13, 14, 14]
    assert [width_of(spec.layer(layer).feed_forward) for layer in (14, 15)] == [6144, 12288]
    assert spec.layer(4).attention.rope == RopeSpec(theta=1e6, rotated=128, scaling="proportional")
    assert spec.layer(0).attention.rope == RopeSpec(theta=1e4)


def test_gemma4_with_experts() -> None:
    spec = spec_of(gemma4(30, 6, A4B))
    sliding, full = spec.layer(0), spec.layer(5)
    assert (sizes_of(sliding.attention), sizes_of(full.attention)) == ((16, 8, 256, 1024), (16, 2, 512, 0))
    assert (sliding.attention.keys_as_values, full.attention.keys_as_values) == (False, True)
    experts = full.feed_forward.experts
    assert experts is not None
    assert (experts.count, experts.chosen, experts.shared_intermediate) == (128, 8, 2112)
    assert (width_of(full.feed_forward), experts.apart, experts.expert_scales) == (704, True, True)
    assert spec.token_input == 0


def test_gemma4_that_is_dense() -> None:
    spec = spec_of(gemma4(60, 6, DENSE_31B))
    assert sizes_of(spec.layer(0).attention) == (32, 16, 256, 1024)
    assert sizes_of(spec.layer(59).attention) == (32, 4, 512, 0)
    assert (spec.context_tokens, spec.shares_pages, spec.layer(0).attention.score_scale) == (262144, False, 1.0)


@pytest.mark.parametrize(
    ("hidden", "heads", "said", "width"), [(1024, 16, 6656, 4608), (1536, 24, 10240, 6912), (2048, 32, 12288, 8192)]
)
@pytest.mark.parametrize("key", ["block_ff_dim", "intermediate_size"])
@pytest.mark.parametrize("listed", [True, False])
def test_lfm2(hidden: int, heads: int, said: int, width: int, key: str, *, listed: bool) -> None:
    kinds = ["full_attention" if layer in ATTENTION_OF_16 else "conv" for layer in range(16)]
    layers: dict[str, object] = {"layer_types": kinds} if listed else {"full_attn_idxs": ATTENTION_OF_16}
    spec = spec_of({**LFM2, "hidden_size": hidden, "num_attention_heads": heads, key: said, **layers})
    assert [layer for layer in range(16) if not spec.layer(layer).recurrent] == ATTENTION_OF_16
    assert spec.layer(0).recurrent == ShortConvSpec(channels=hidden, taps=3)
    attention = spec.layer(2).attention
    assert (attention.heads, attention.kv_heads, attention.head_dim, attention.qk_norm) == (heads, 8, 64, "heads")
    assert attention.rope == RopeSpec(theta=1e6)
    assert width_of(spec.layer(0).feed_forward) == width
    assert (spec.tied_output, spec.norm_epsilon) == (True, 1e-5)


def test_an_lfm2_whose_width_is_not_rounded() -> None:
    sizes = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 1000}
    assert width_of(spec_of({**LFM2, **sizes, "block_ffn_dim_multiplier": None}).layer(0).feed_forward) == 666
    assert width_of(spec_of({**LFM2, **sizes, "block_auto_adjust_ff_dim": False}).layer(0).feed_forward) == 1000


def test_lfm2_with_experts() -> None:
    spec = spec_of(LFM2_8B_A1B)
    assert [spec.layer(layer).feed_forward.intermediate for layer in (0, 1, 2, 23)] == [7168, 7168, 1792, 1792]
    experts = spec.layer(2).feed_forward.experts
    assert experts is not None
    assert (experts.count, experts.chosen, experts.scoring, experts.normalised) == (32, 4, "sigmoid", True)
    assert (experts.choice_bias, experts.scale, experts.shared_intermediate) == (True, 1.0, 0)
    assert spec.tied_output


@pytest.mark.parametrize("config", [{**LFM2, "hidden_size": 1024, "num_attention_heads": 16}, LFM2_8B_A1B])
@pytest.mark.parametrize("tied", [True, False])
def test_an_lfm2_is_tied_as_tie_embedding_says(config: dict[str, object], *, tied: bool) -> None:
    assert spec_of({**config, "tie_embedding": tied, "tie_word_embeddings": not tied}).tied_output is tied


NEW_ROPE: dict[str, object] = {
    "rope_scaling": None,
    "mlp_only_layers": None,
    "partial_rotary_factor": None,
    "rope_theta": None,
    "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"},
}


@pytest.mark.parametrize("more", [{}, NEW_ROPE], ids=["as published", "as saved anew"])
def test_qwen3_next(more: dict[str, object]) -> None:
    spec = spec_of({**QWEN3_NEXT, **more})
    attention, experts = spec.layer(3).attention, spec.layer(0).feed_forward.experts
    assert [layer for layer in range(48) if not spec.layer(layer).recurrent] == list(range(3, 48, 4))
    assert spec.layer(0).recurrent == DeltaNetSpec(value_heads=32, key_heads=16, key_dim=128, value_dim=128, taps=4)
    assert sizes_of(attention) == (16, 2, 256, 0)
    assert (attention.output_gate, attention.qk_norm, attention.qkv_bias) == (True, "heads", False)
    assert attention.rope == RopeSpec(theta=1e7, rotated=64)
    assert experts is not None
    assert (experts.count, experts.chosen, experts.normalised, experts.scoring) == (512, 10, True, "softmax")
    assert (experts.shared_intermediate, experts.shared_gate, width_of(spec.layer(0).feed_forward)) == (512, True, 512)
    assert (spec.tied_output, spec.context_tokens) == (False, 262144)


@pytest.mark.parametrize(
    ("layers", "hidden", "width", "heads", "kv_heads", "value_heads", "tied"),
    [
        (24, 1024, 3584, 8, 2, 16, True),  # 0.8B
        (32, 4096, 12288, 16, 4, 32, False),  # 9B
        (64, 5120, 17408, 24, 4, 48, False),  # 27B
    ],
)
def test_dense_qwen3_5(
    layers: int, hidden: int, width: int, heads: int, kv_heads: int, value_heads: int, *, tied: bool
) -> None:
    whole = qwen3_5(
        "qwen3_5",
        layers,
        tied=tied,
        hidden_size=hidden,
        intermediate_size=width,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        linear_num_value_heads=value_heads,
    )
    spec = spec_of(whole)
    delta_net = spec.layer(0).recurrent
    assert isinstance(delta_net, DeltaNetSpec)
    assert (delta_net.value_heads, delta_net.key_heads, delta_net.tiled) == (value_heads, 16, False)
    assert sizes_of(spec.layer(3).attention) == (heads, kv_heads, 256, 0)
    assert spec.layer(3).attention.rope == RopeSpec(theta=1e7, rotated=64)
    assert (width_of(spec.layer(0).feed_forward), spec.layer(0).feed_forward.experts) == (width, None)
    assert spec.tied_output is tied


@pytest.mark.parametrize(
    ("layers", "hidden", "width", "count", "chosen", "heads", "value_heads"),
    [(40, 2048, 512, 256, 8, 16, 32), (48, 3072, 1024, 256, 8, 32, 64), (60, 4096, 1024, 512, 10, 32, 64)],
    ids=["35B-A3B", "122B-A10B", "397B-A17B"],
)
def test_qwen3_5_with_experts(
    layers: int, hidden: int, width: int, count: int, chosen: int, heads: int, value_heads: int
) -> None:
    whole = qwen3_5(
        "qwen3_5_moe",
        layers,
        hidden_size=hidden,
        moe_intermediate_size=width,
        shared_expert_intermediate_size=width,
        num_experts=count,
        num_experts_per_tok=chosen,
        num_attention_heads=heads,
        num_key_value_heads=2,
        linear_num_value_heads=value_heads,
    )
    spec = spec_of(whole)
    feed_forward = spec.layer(1).feed_forward
    assert feed_forward.experts is not None
    assert (width_of(feed_forward), feed_forward.experts.count, feed_forward.experts.chosen) == (width, count, chosen)
    assert (feed_forward.experts.shared_intermediate, feed_forward.experts.shared_gate) == (width, True)
    assert (feed_forward.experts.normalised, feed_forward.experts.scoring) == (True, "softmax")
    assert sizes_of(spec.layer(3).attention) == (heads, 2, 256, 0)
