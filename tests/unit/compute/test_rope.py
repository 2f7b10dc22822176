"""Frequencies and amplitudes are those of `transformers`, and heads are turned as it turns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from layerline.errors import ModelUnsupportedError
from layerline.models.config_fields import ConfigFields
from layerline.models.config_rope import rope_from_config, rope_of_layer_type
from layerline.models.rope_spec import RopeSpec
from node.model.rope import Rope, turn_
from node.slices.rope_frequencies import frequencies, pair_order

HEAD = 64
CONTEXT_TOKENS = 4096
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + 0.07 * pair for pair in range(24)],
    "long_factor": [1.0 + 1.3 * pair for pair in range(24)],
    "original_max_position_embeddings": 512,
    "partial_rotary_factor": 0.75,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 8.0},
    "linear of a part": {"rope_type": "linear", "factor": 8.0, "partial_rotary_factor": 0.5},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    },
    "llama3 with one bound": {
        "rope_type": "llama3",
        "factor": 16.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 1.0,
        "original_max_position_embeddings": 1024,
    },
    "yarn": YARN,
    "yarn with an amplitude": {**YARN, "attention_factor": 1.25},
    "yarn of DeepSeek": {**YARN, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707},
    "yarn with one scale": {**YARN, "mscale_all_dim": 0.707},
    "yarn of gpt-oss": {**YARN, "rope_theta": 150000.0, "factor": 32.0, "truncate": False, "beta_fast": 24.0},
    "yarn with its factor left out": {**YARN, "factor": None},
    "yarn that shortens": {**YARN, "factor": 0.5, "beta_fast": 8.0, "beta_slow": 2.0},
    "yarn of a part with one bound": {**YARN, "partial_rotary_factor": 0.25, "rope_theta": 1e12, "beta_slow": 30.0},
    "yarn all slowed": {**YARN, "original_max_position_embeddings": 8},
    "longrope": LONGROPE,
    "longrope with a factor": {**LONGROPE, "factor": 32.0},
    "longrope with an amplitude": {**LONGROPE, "attention_factor": 1.75},
    "longrope without growth": {**LONGROPE, "original_max_position_embeddings": CONTEXT_TOKENS},
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
    "proportional with a factor": {"rope_type": "proportional", "partial_rotary_factor": 0.3, "factor": 8.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
}


def spec_of(settings: Mapping[str, Any]) -> RopeSpec:
    config = ConfigFields({"rope_parameters": {"rope_theta": 10000.0, **settings}}, "config.json")
    return rope_from_config(config, CONTEXT_TOKENS, head_dim=HEAD)


def reference(settings: Mapping[str, Any], length: int | None = None) -> tuple[Tensor, float]:
    config = LlamaConfig(
        hidden_size=4 * HEAD,
        num_attention_heads=4,
        head_dim=HEAD,
        max_position_embeddings=CONTEXT_TOKENS,
        rope_parameters={"rope_theta": 10000.0, **settings},
    )
    made: tuple[Tensor, float] = ROPE_INIT_FUNCTIONS[settings["rope_type"]](config, None, length)
    return made


def assert_same(spec: RopeSpec, wanted: tuple[Tensor, float]) -> None:
    np.testing.assert_allclose(frequencies(spec, HEAD), wanted[0].numpy(), rtol=1e-6)
    assert spec.amplitude == pytest.approx(wanted[1], rel=1e-6)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_frequencies_are_those_of_transformers(settings: Mapping[str, Any]) -> None:
    assert_same(spec_of(settings), reference(settings))


def test_those_beyond_the_original_context_are_the_long_ones() -> None:
    spec = spec_of(LONGROPE)
    assert not spec.is_long(512)
    assert spec.is_long(513)
    assert_same(spec.lengthened(), reference(LONGROPE, 513))
    assert not np.allclose(frequencies(spec, HEAD), frequencies(spec.lengthened(), HEAD), rtol=0.1)


def test_those_of_dynamic_are_plain_in_the_whole_context() -> None:
    settings = SETTINGS["dynamic"]
    assert_same(spec_of(settings), reference(settings, CONTEXT_TOKENS))
    beyond, _ = reference(settings, CONTEXT_TOKENS + 100)
    assert not np.allclose(frequencies(spec_of(settings), HEAD), beyond.numpy(), rtol=0.001)


def test_types_of_layers_with_settings_of_their_own() -> None:
    nested: dict[str, object] = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default"},
        "without": None,
    }
    config = ConfigFields({"rope_parameters": nested, "rope_theta": 5000.0}, "config.json")
    by_type = {name: rope_of_layer_type(config, CONTEXT_TOKENS, name) for name in nested}
    assert by_type == {
        "full_attention": RopeSpec(theta=1e6, scaling="linear", factor=8.0),
        "sliding_attention": RopeSpec(theta=5000.0),
        "without": None,
    }
    with pytest.raises(ModelUnsupportedError, match="rope_parameters without those of chunked_attention"):
        rope_of_layer_type(config, CONTEXT_TOKENS, "chunked_attention")
    flat = ConfigFields({"rope_theta": 5000.0}, "config.json")
    assert rope_of_layer_type(flat, CONTEXT_TOKENS, "full_attention") == RopeSpec(theta=5000.0)


def test_pairs_are_next_to_each_other_in_a_head() -> None:
    plain = RopeSpec(theta=1e4)
    assert pair_order(plain, 6) == (0, 3, 1, 4, 2, 5)
    assert pair_order(replace(plain, rotated=4), 6) == (0, 2, 1, 3, 4, 5)
    assert pair_order(replace(plain, rotated=4, scaling="proportional"), 6) == (0, 3, 1, 4, 2, 5)
    assert pair_order(replace(plain, interleaved=True), 6) == ()


def half_turned(heads_TND: Tensor, frequencies_P: Tensor, amplitude: float) -> Tensor:
    """The heads as `transformers` turns them, in the order that model files have."""
    angles_T1P = torch.arange(len(heads_TND))[:, None, None] * frequencies_P
    cosine, sine = (amplitude * part.repeat(1, 1, 2) for part in (angles_T1P.cos(), angles_T1P.sin()))
    turned, kept = heads_TND[..., : cosine.shape[-1]], heads_TND[..., cosine.shape[-1] :]
    first, second = turned.chunk(2, -1)
    return torch.cat([turned * cosine + torch.cat([-second, first], -1) * sine, kept], -1)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_are_turned_as_transformers_turns_them(settings: Mapping[str, Any], dtype: torch.dtype) -> None:
    spec = spec_of(settings)
    heads_TND = torch.randn(20, 3, HEAD, generator=torch.manual_seed(1)).to(dtype)
    wanted = half_turned(heads_TND.float(), *reference(settings))
    order = list(pair_order(spec, HEAD))
    ours = torch.zeros(20, 5, HEAD, dtype=dtype)[:, 1:4]  # rows of a larger tensor, as queries and keys are
    ours.copy_(heads_TND[..., order])
    turn_(ours, Rope.of(spec, HEAD, torch.device("cpu")).turns_at(torch.arange(20.0)))
    tolerance = 1e-5 if dtype == torch.float32 else 0.04
    torch.testing.assert_close(
        ours.float(), wanted[..., order], rtol=0.01 if tolerance > 0.01 else 1e-5, atol=tolerance
    )
