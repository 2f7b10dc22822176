"""The rotary settings of config.json and GGUF metadata; a scaling that is not known is refused by name."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.headers import read_headers
from layerline.models.rope_factors import llama3_factors, rounded
from layerline.models.rope_spec import RopeSpec
from tests.fakes.model_files import ROPE_THETA, TinyModel, write_folder, write_gguf

LLAMA = TinyModel()
LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
WITHOUT_ORIGINAL = {key: value for key, value in LLAMA3_SCALING.items() if not key.startswith("original")}
YARN_ROPE = RopeSpec(
    theta=ROPE_THETA,
    scaling="yarn",
    factor=4.0,
    amplitude=rounded(1 + 0.1 * math.log(4)),
    original_context_tokens=64,
    fast_turns=8.0,
)
PHI3 = TinyModel(family="phi3")
LONGROPE = {"short_factor": [1.0, 2.0, 4.0, 8.0], "long_factor": [2.0, 4.0, 8.0, 16.0]}
LONGROPE_ROPE = RopeSpec(
    theta=ROPE_THETA,
    rotated=8,
    scaling="longrope",
    amplitude=1.5,
    original_context_tokens=64,
    divisors=(1.0, 2.0, 4.0, 8.0),
    long_divisors=(2.0, 4.0, 8.0, 16.0),
)
FACTORS = {
    f"rope_factors_{name}.weight": np.array(LONGROPE[f"{name}_factor"], np.float32) for name in ("short", "long")
}
LLAMA3_ROPE = RopeSpec(theta=ROPE_THETA, scaling="llama3", factor=8.0)


def rope_of(path: Path) -> RopeSpec | None:
    return read_headers(path).spec.layer(1).attention.rope


@pytest.mark.parametrize(
    ("config", "rope"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, RopeSpec(theta=ROPE_THETA, scaling="linear", factor=2.0)),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3_SCALING}}, LLAMA3_ROPE),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}, "rope_theta": None}, RopeSpec(theta=5.0)),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": ROPE_THETA, **LLAMA3_SCALING}}, LLAMA3_ROPE),
        (
            {
                "rope_parameters": {"rope_type": "yarn", "rope_theta": 5.0},
                "rope_scaling": {"type": "linear", "factor": 4},
            },
            RopeSpec(theta=ROPE_THETA, scaling="linear", factor=4.0),
        ),
        (
            {"rope_parameters": {"type": "linear", "factor": 2, "rope_theta": 5.0}, "rope_scaling": {}},
            RopeSpec(theta=5.0, scaling="linear", factor=2.0),
        ),
        ({"rope_parameters": None, "rope_scaling": None}, RopeSpec(theta=ROPE_THETA)),
        (
            {"rope_scaling": {"rope_type": "llama3", **LLAMA3_SCALING}, "original_max_position_embeddings": 64},
            replace(LLAMA3_ROPE, original_context_tokens=64),
        ),
        (
            {"rope_scaling": {"rope_type": "llama3", **WITHOUT_ORIGINAL}},
            replace(LLAMA3_ROPE, original_context_tokens=256),
        ),
        ({"rope_scaling": {"type": "linear", "rope_type": "default", "factor": 2.0}}, RopeSpec(theta=ROPE_THETA)),
        ({"original_max_position_embeddings": 64}, RopeSpec(theta=ROPE_THETA)),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, RopeSpec(theta=ROPE_THETA)),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}, RopeSpec(theta=ROPE_THETA)),
        ({"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]}}, RopeSpec(theta=ROPE_THETA)),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8}},
            YARN_ROPE,
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "attention_factor": 1.5, "truncate": False}},
            replace(YARN_ROPE, amplitude=1.5, original_context_tokens=256, fast_turns=32.0, whole_bounds=False),
        ),
    ],
)
def test_rotary_settings_of_a_config(tmp_path: Path, config: Mapping[str, object], rope: RopeSpec) -> None:
    assert read_headers(write_folder(tmp_path, LLAMA, config=config)).spec.layer(1).attention.rope == rope


def test_rotary_settings_of_a_gguf(tmp_path: Path) -> None:
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    wanted = RopeSpec(theta=ROPE_THETA, scaling="linear", factor=4.0)
    assert rope_of(write_gguf(tmp_path / "linear.gguf", LLAMA, metadata=scaling)) == wanted
    older = {"llama.rope.scale_linear": 4.0}
    assert rope_of(write_gguf(tmp_path / "older.gguf", LLAMA, metadata=older)) == wanted
    unscaled = {**scaling, "llama.rope.scaling.type": "none"}
    assert rope_of(write_gguf(tmp_path / "none.gguf", LLAMA, metadata=unscaled)) == RopeSpec(theta=ROPE_THETA)
    zero = {"llama.rope.scaling.factor": 0.0}
    assert rope_of(write_gguf(tmp_path / "zero.gguf", LLAMA, metadata=zero)) == RopeSpec(theta=ROPE_THETA)
    factors = {"rope_freqs.weight": np.array(llama3_factors(LLAMA3_ROPE, LLAMA.head_dim), np.float32)}
    assert (
        read_headers(write_gguf(tmp_path / "llama3.gguf", LLAMA, tensors=factors)).spec.layer(1).attention.rope
        == LLAMA3_ROPE
    )


def test_divisors_of_llama_4_have_one_bound(tmp_path: Path) -> None:
    rope = replace(LLAMA3_ROPE, factor=16.0, high_frequency_factor=1.0)
    factors = {"rope_freqs.weight": np.array(llama3_factors(rope, LLAMA.head_dim), np.float32)}
    assert set(factors["rope_freqs.weight"].tolist()) == {1.0, 16.0}
    assert rope_of(write_gguf(tmp_path / "model.gguf", LLAMA, tensors=factors)) == rope


def test_rotary_divisors_of_another_scaling_are_refused(tmp_path: Path) -> None:
    factors = {"rope_freqs.weight": np.linspace(1, 8, LLAMA.head_dim // 2, dtype=np.float32)}
    with pytest.raises(ModelUnsupportedError, match=r"rope_freqs\.weight"):
        read_headers(write_gguf(tmp_path / "model.gguf", LLAMA, tensors=factors))


@pytest.mark.parametrize("kind", ["longrope", "su"])
def test_factors_of_each_pair_in_a_config(tmp_path: Path, kind: str) -> None:
    scaling = {"type": kind, **LONGROPE, "attention_factor": 1.5}
    config = {"rope_scaling": scaling, "partial_rotary_factor": 0.5, "original_max_position_embeddings": 64}
    assert rope_of(write_folder(tmp_path, PHI3, config=config)) == LONGROPE_ROPE


@pytest.mark.parametrize("kind", [None, "longrope"])
def test_factors_of_each_pair_in_a_gguf(tmp_path: Path, kind: str | None) -> None:
    metadata = {
        "phi3.rope.dimension_count": 8,
        "phi3.rope.scaling.type": kind,
        "phi3.rope.scaling.original_context_length": 64,
        "phi3.rope.scaling.attn_factor": 1.5,
    }
    path = write_gguf(tmp_path / "model.gguf", PHI3, metadata=metadata, tensors=FACTORS)
    assert rope_of(path) == LONGROPE_ROPE


def test_yarn_in_a_gguf(tmp_path: Path) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 64, "yarn_beta_fast": 8.0}
    path = tmp_path / "model.gguf"

    def rope(**more: float) -> RopeSpec | None:
        metadata = {f"llama.rope.scaling.{key}": value for key, value in {**yarn, **more}.items()}
        return rope_of(write_gguf(path, LLAMA, metadata=metadata))

    assert rope() == YARN_ROPE
    assert rope(yarn_log_multiplier=1.0) == replace(YARN_ROPE, amplitude=1.0)
    assert rope(yarn_attn_factor=1.25) == replace(YARN_ROPE, amplitude=1.25)
    assert rope(yarn_attn_factor=1.25, attn_factor=2.0) == replace(YARN_ROPE, amplitude=2.5)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"rope_scaling": {"type": "longrope", **LONGROPE, "short_factor": None}}, "short_factor must be a list"),
        ({"rope_scaling": {"type": "longrope", **LONGROPE, "long_factor": [1.0, 0.0]}}, "long_factor must be a list"),
        ({"rope_scaling": {"type": "longrope", **LONGROPE, "long_factor": [1.0, 2.0]}}, "divisors of unlike number"),
        ({"rope_scaling": {"type": "longrope", **LONGROPE}}, "a rotation that does not go with head_dim"),
        (
            {"rope_scaling": {"type": "longrope", **LONGROPE}, "original_max_position_embeddings": 1},
            "original_max_position_embeddings must be more than 1",
        ),
        ({"partial_rotary_factor": 0.01}, "partial_rotary_factor must be a part of 16 numbers"),
        ({"partial_rotary_factor": 0.2}, "partial_rotary_factor must be a part of 16 numbers"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor must be a number from 0 to 1"),
    ],
)
def test_factors_that_cannot_be(tmp_path: Path, config: Mapping[str, object], reason: str) -> None:
    with pytest.raises(ModelCorruptError, match=reason):
        read_headers(write_folder(tmp_path, PHI3, config=config))


@pytest.mark.parametrize(
    ("scaling", "reason"),
    [
        ({}, "factor is missing"),
        ({"factor": 4.0, "beta_fast": 1.0}, "beta_fast must be more than beta_slow"),
        ({"factor": 4.0, "rope_theta": 0.5}, "rope_theta must be more than 1 for yarn"),
        ({"factor": 4.0, "mscale": -1.0, "mscale_all_dim": 1.0}, "mscale must be a positive number"),
        ({"factor": 4.0, "attention_factor": 0.0}, "attention_factor must be a number from"),
        ({"factor": 4.0, "truncate": "no"}, "truncate must be true or false"),
    ],
)
def test_yarn_that_cannot_be(tmp_path: Path, scaling: Mapping[str, object], reason: str) -> None:
    with pytest.raises(ModelCorruptError, match=reason):
        read_headers(write_folder(tmp_path, LLAMA, config={"rope_scaling": {"type": "yarn", **scaling}}))


@pytest.mark.parametrize(
    ("metadata", "tensors", "reason"),
    [
        ({}, {"rope_factors_long.weight": None}, "must both be there"),
        ({}, {"rope_freqs.weight": np.ones(8, np.float32)}, r"and no rope_freqs\.weight"),
        ({"phi3.rope.scaling.type": "longrope"}, dict.fromkeys(FACTORS), "must both be there"),
        ({"phi3.rope.dimension_count": 7}, {}, "rope.dimension_count must be a part of 16 numbers"),
        ({"phi3.rope.dimension_count": 32}, {}, "rope.dimension_count must be a part of 16 numbers"),
        ({"phi3.rope.scaling.attn_factor": 0.0}, {}, "attn_factor must be a number from"),
    ],
)
def test_factors_that_a_gguf_cannot_have(
    tmp_path: Path,
    metadata: Mapping[str, object],
    tensors: Mapping[str, NDArray[np.float32] | None],
    reason: str,
) -> None:
    own = {"phi3.rope.dimension_count": 8, **metadata}
    with pytest.raises(ModelCorruptError, match=reason):
        read_headers(write_gguf(tmp_path / "model.gguf", PHI3, metadata=own, tensors={**FACTORS, **tensors}))
