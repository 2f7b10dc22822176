"""What single families make of configs that leave things out, say them otherwise, or say what cannot be."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from layerline.errors import ModelError
from layerline.models.config_fields import ConfigFields
from layerline.models.known_families import family_of_config
from layerline.models.query_growth import QueryGrowth
from layerline.models.sentencepiece import LONGEST_MADE, merges_by_score
from layerline.models.spec import ModelSpec
from layerline.models.text_part import text_config
from tests.fakes.made_models import SIZES


def spec_of(model_type: str, config: Mapping[str, object]) -> ModelSpec:
    fields = ConfigFields({**SIZES, "model_type": model_type, **config}, "config.json")
    return family_of_config(model_type).from_config(fields)


def windows(spec: ModelSpec) -> list[int]:
    return [spec.layer(index).attention.window_tokens for index in range(spec.layers)]


@pytest.mark.parametrize("pattern", [4, "LLLG"])
def test_a_pattern_of_windows_is_a_number_or_letters(pattern: object) -> None:
    config = {"sliding_window": 9, "sliding_window_pattern": pattern}
    assert windows(spec_of("exaone4", config)) == [9, 9, 9, 0]


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_queries_grow_by_either_section(key: str) -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.2}
    spec = spec_of("ministral3", {key: rope})
    assert spec.layer(0).attention.query_growth == QueryGrowth(factor=0.2, length=32)


def test_a_ministral3_without_a_rotation_has_that_of_transformers() -> None:
    attention = spec_of("ministral3", {}).layer(0).attention
    assert attention.rope is not None
    assert (attention.rope.theta, attention.rope.scaling, attention.rope.factor) == (1e6, "yarn", 16.0)
    assert attention.query_growth == QueryGrowth(factor=0.1, length=16384)


@pytest.mark.parametrize(
    ("model_type", "theta"), [("qwen2", 1e4), ("qwen2_5_vl_text", 1e6), ("qwen3", 1e4), ("qwen3_vl_text", 5e5)]
)
def test_text_parts_have_defaults_of_their_own(model_type: str, theta: float) -> None:
    rope = spec_of(model_type, {}).layer(0).attention.rope
    assert rope is not None
    assert rope.theta == theta


def test_what_is_said_of_the_whole_ties_the_text_part() -> None:
    text = {"model_type": "qwen2", "tie_word_embeddings": False}
    whole = ConfigFields({"tie_word_embeddings": True, "text_config": text, "vision_config": {}}, "config.json")
    assert text_config(whole).flag("tie_word_embeddings") is True


@pytest.mark.parametrize(
    ("model_type", "config"),
    [
        ("minimax_m2", {"rotary_dim": -8}),
        ("minimax_m2", {"rotary_dim": 48}),
        ("exaone4", {"sliding_window_pattern": "LXG"}),
        ("smollm3", {"no_rope_layer_interval": 0}),
        ("smollm3", {"no_rope_layers": [1]}),
        ("cohere2", {"logit_scale": 0.0}),
        ("gemma2", {"query_pre_attn_scalar": -1}),
    ],
)
def test_what_cannot_be_is_an_error_of_the_model(model_type: str, config: dict[str, object]) -> None:
    with pytest.raises(ModelError):
        spec_of(model_type, config)


def test_more_experts_than_any_model_has_are_refused_before_they_are_listed() -> None:
    config = {"num_hidden_layers": 96, "num_experts": 4096}
    with pytest.raises(ValueError, match="too many experts"):
        spec_of("qwen3_moe", config)


def test_a_piece_of_a_million_letters_takes_no_time() -> None:
    tokens = ["a", "b", "ab", "a" * (LONGEST_MADE * 1000)]
    assert merges_by_score(tokens, [0.0, 0.0, -1.0, -2.0]) == [("a", "b")]
