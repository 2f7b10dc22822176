"""What families with experts ask for that cannot be done is refused by name, and sizes that cannot be in a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from layerline.errors import ModelUnsupportedError
from layerline.models.config_fields import ConfigFields
from layerline.models.feed_forward_spec import ExpertsSpec
from layerline.models.known_families import family_of_config
from tests.fakes.family_models import FAMILIES
from tests.fakes.made_models import SIZES

EXPERTS = ExpertsSpec(count=8, chosen=2, scoring="softmax")


@pytest.mark.parametrize(
    ("family", "config", "feature"),
    [
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv"),
        ("gpt_oss", {"swiglu_alpha": 1.5}, "a swiglu_alpha of 1.5"),
        ("gpt_oss", {"swiglu_limit": 6.0}, "a swiglu_limit of 6"),
        ("gpt_oss", {"rope_parameters": None}, "a rotary scaling that it does not say"),
        ("qwen3_moe", {"hidden_act": "relu"}, "hidden_act 'relu'"),
    ],
)
def test_unsupported_configs(family: str, config: dict[str, Any], feature: str) -> None:
    values = {**SIZES, **FAMILIES[family].config}
    assert family_of_config(family).from_config(ConfigFields(values, "config.json")).kinds
    with pytest.raises(ModelUnsupportedError, match=feature):
        family_of_config(family).from_config(ConfigFields({**values, **config}, "config.json"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"chosen": 9}, "number of experts"),
        ({"chosen": 0}, "number of experts"),
        ({"groups": 3}, "not of one size"),
        ({"groups": 8}, "fewer than two"),
        ({"groups": 2, "chosen_groups": 3}, "number of groups"),
        ({"groups": 4, "chosen": 3}, "fewer experts than are chosen"),
        ({"shared_gate": True}, "a gate of no shared expert"),
        ({"scale": 0.0}, "the scale of experts"),
    ],
)
def test_experts_that_cannot_be(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(EXPERTS, **changes)
