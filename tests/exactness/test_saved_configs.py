"""Configs of published models say the same after transformers has read and saved them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from layerline.models.config_fields import ConfigFields
from layerline.models.known_families import family_of_config
from layerline.models.spec import ModelSpec
from layerline.models.text_part import text_config
from tests.fakes.published_configs import PUBLISHED


def spec_of(config: Mapping[str, object]) -> ModelSpec:
    fields = text_config(ConfigFields(config, "config.json"))
    return family_of_config(fields.text("model_type")).from_config(fields)


@pytest.mark.parametrize("in_brief", [True, False])
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_config_that_was_saved_anew(name: str, *, in_brief: bool) -> None:
    from transformers import AutoConfig  # noqa: PLC0415

    values: dict[str, Any] = json.loads(json.dumps(PUBLISHED[name]))
    values.pop("vision_config", None)
    text = values.get("text_config", values)
    if "attn_temperature_tuning" in text:
        text["attn_temperature_tuning"] = True  # transformers takes no number any more
    read = AutoConfig.for_model(values.pop("model_type"), **values)
    saved = json.loads(read.to_json_string(use_diff=in_brief))
    assert spec_of(saved) == spec_of(PUBLISHED[name])
