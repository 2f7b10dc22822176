"""The rotary settings of config.json and GGUF metadata; a scaling that is not known is refused by name."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layerline.errors import ModelUnsupportedError
from layerline.models.headers import read_headers
from layerline.models.rope_factors import llama3_factors
from layerline.models.spec import RopeSpec
from tests.fakes.model_files import ROPE_THETA, TinyModel, write_folder, write_gguf

LLAMA = TinyModel()
LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
WITHOUT_ORIGINAL = {key: value for key, value in LLAMA3_SCALING.items() if not key.startswith("original")}
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


def test_rotary_divisors_of_another_scaling_are_refused(tmp_path: Path) -> None:
    factors = {"rope_freqs.weight": np.linspace(1, 8, LLAMA.head_dim // 2, dtype=np.float32)}
    with pytest.raises(ModelUnsupportedError, match=r"rope_freqs\.weight"):
        read_headers(write_gguf(tmp_path / "model.gguf", LLAMA, tensors=factors))
