"""What is made of configs and metadata with Mamba layers: defaults, names of any year, and what is refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from layerline.errors import ModelCorruptError, ModelError, ModelUnsupportedError
from layerline.models.config_fields import ConfigFields
from layerline.models.families import granitemoehybrid
from layerline.models.feed_forward_spec import ExpertsSpec
from layerline.models.fields import Fields
from layerline.models.gguf_fields import GgufModel
from layerline.models.gguf_mamba import mamba2_from_gguf
from layerline.models.gguf_rope import RopeTensors
from layerline.models.recurrent import Mamba2Spec
from layerline.models.spec import ModelSpec
from tests.fakes.made_models import LAYERS, SIZES

KINDS = ["mamba", "attention"] * (LAYERS // 2)
PLAIN: dict[str, Any] = {**SIZES, "layer_types": KINDS, "mamba_n_heads": 8}
SMALL: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 768,
    "shared_intermediate_size": 1536,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": None,
    "num_local_experts": 72,
    "num_experts_per_tok": 10,
    "position_embedding_type": "nope",
    "rope_theta": 10000,
    "attention_multiplier": 0.0078125,
    "mamba_chunk_size": 256,
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 128,
    "mamba_proj_bias": False,
}  # of Granite-4.0-H-Small


def spec_of(config: Mapping[str, object]) -> ModelSpec:
    return granitemoehybrid.from_config(ConfigFields({**PLAIN, **config}, "config.json"))


def kinds(spec: ModelSpec) -> list[bool]:
    return [spec.layer(index).recurrent is not None for index in range(spec.layers)]


def test_a_published_config_is_read() -> None:
    spec = spec_of(SMALL)
    first, second = spec.layer(0), spec.layer(1)
    assert first.recurrent == Mamba2Spec(heads=128, head_dim=64, groups=1, state_dim=128, taps=4)
    assert (second.attention.head_dim, second.attention.rope, second.attention.scale) == (128, None, 0.0078125)
    assert first.feed_forward == second.feed_forward
    experts = ExpertsSpec(count=72, chosen=10, scoring="softmax", normalised=True, shared_intermediate=1536)
    assert (first.feed_forward.intermediate, first.feed_forward.experts) == (768, experts)


def test_what_a_config_leaves_out_is_as_in_transformers() -> None:
    spec = spec_of({})
    assert spec.layer(0).recurrent == Mamba2Spec(heads=8, head_dim=16, groups=1, state_dim=256, taps=4)
    experts = spec.layer(0).feed_forward.experts
    assert experts is not None
    assert (experts.count, experts.chosen, experts.shared_intermediate) == (8, 2, 1024)
    assert spec.layer(1).attention.rope is None


def test_without_experts_the_shared_one_is_the_feed_forward() -> None:
    feed_forward = spec_of({"num_local_experts": 0, "shared_intermediate_size": 72}).layer(0).feed_forward
    assert (feed_forward.intermediate, feed_forward.experts) == (72, None)


@pytest.mark.parametrize("key", ["layer_types", "layers_block_type"])
@pytest.mark.parametrize("names", [("mamba", "attention"), ("linear_attention", "full_attention")])
def test_layers_are_told_by_the_names_of_any_year(key: str, names: tuple[str, str]) -> None:
    spec = spec_of({"layer_types": None, key: [names[0], names[1], names[0], names[0]]})
    assert kinds(spec) == [True, False, True, True]


def test_without_mamba_layers_nothing_is_asked_of_them() -> None:
    spec = spec_of({"layer_types": ["attention"] * LAYERS, "mamba_proj_bias": True, "position_embedding_type": "rope"})
    assert kinds(spec) == [False] * LAYERS
    assert spec.layer(0).attention.rope is not None


@pytest.mark.parametrize("limit", [None, [0.0, math.inf], [0, {"__float__": "Infinity"}]])
def test_steps_without_bounds_may_be_said_in_any_way(limit: object) -> None:
    assert kinds(spec_of({"time_step_limit": limit})) == [True, False, True, False]


@pytest.mark.parametrize(
    ("config", "error", "reason"),
    [
        ({"time_step_limit": [0.001, 0.1]}, ModelUnsupportedError, "bounds of a Mamba layer's steps"),
        ({"time_step_limit": [0.001, math.inf]}, ModelUnsupportedError, "time_step_limit"),
        ({"time_step_limit": []}, ModelUnsupportedError, "time_step_limit"),
        ({"time_step_limit": 1}, ModelCorruptError, "time_step_limit must be a list"),
        ({"mamba_proj_bias": True}, ModelUnsupportedError, "mamba_proj_bias"),
        ({"hidden_act": "gelu_new"}, ModelUnsupportedError, "a Mamba layer with hidden_act 'gelu_new'"),
        ({"mamba_d_head": 24}, ModelCorruptError, "mamba_d_head must be 128 numbers of a row shared by 8 heads"),
        ({"mamba_n_heads": 0}, ModelCorruptError, "mamba_d_head must be"),
        ({"layer_types": ["mamba", "moe", "mamba", "attention"]}, ModelUnsupportedError, "layer_types other than"),
        ({"layer_types": KINDS[1:]}, ModelUnsupportedError, "for each layer"),
    ],
)
def test_what_no_layer_here_does_is_refused(config: Mapping[str, object], error: type[ModelError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        spec_of(config)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"mamba_n_groups": 3}, "multiple of groups"),
        ({"mamba_d_conv": 1}, "taps out of range"),
        ({"layer_types": ["mamba"] * LAYERS}, "no layer has attention"),
    ],
)
def test_what_cannot_be_is_refused(config: Mapping[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        spec_of(config)


def test_heads_of_a_file_share_what_is_inside() -> None:
    sizes = {"time_step_rank": 8, "inner_size": 128, "group_count": 2, "state_size": 24, "conv_kernel": 4}
    assert mamba2_from_gguf(gguf_of(sizes)) == Mamba2Spec(
        heads=8, head_dim=16, groups=2, state_dim=24, taps=4, conv_bias=False
    )
    for wrong in ({"time_step_rank": 0}, {"time_step_rank": 7}, {"inner_size": -128}):
        with pytest.raises((ModelError, ValueError), match=r"inner_size must be|range"):
            mamba2_from_gguf(gguf_of({**sizes, **wrong}))


def gguf_of(sizes: Mapping[str, object]) -> GgufModel:
    values = {f"granitehybrid.ssm.{key}": value for key, value in sizes.items()}
    return GgufModel(
        metadata=Fields({**values, "granitehybrid.block_count": 2}, "model.gguf"),
        architecture="granitehybrid",
        tensors=(),
        rope_tensors=RopeTensors(),
    )
