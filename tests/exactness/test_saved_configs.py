"""Configs say the same after transformers has read and saved them, with all that they left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from layerline.models.config_fields import ConfigFields
from layerline.models.known_families import family_of_config, known_families
from layerline.models.spec import ModelSpec
from layerline.models.text_part import text_config
from tests.fakes.published_configs import PUBLISHED

SAID = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
NAMES = [name for family in known_families() for name in (family.model_type, *family.text_parts)]
NOT_BY_DEFAULT = {
    "deepseek_v2",  # its number of chosen experts has no default
    "glm4_moe",  # by default a part of heads is turned that is no pairs
    "gpt_oss",  # its rotation must be said
    "granitemoehybrid",  # by default none of its layers has attention
    "kimi_k2",  # which transformers does not know
}


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


@pytest.mark.parametrize("model_type", sorted({*NAMES} - NOT_BY_DEFAULT))
def test_what_a_config_leaves_out(model_type: str) -> None:
    from transformers import AutoConfig  # noqa: PLC0415

    whole = json.loads(AutoConfig.for_model(model_type).to_json_string(use_diff=False))
    whole = whole.get("text_config", whole)
    sizes = {key: whole[key] for key in SAID if key in whole}
    assert spec_of({**sizes, "model_type": model_type}) == spec_of({**whole, "model_type": model_type})
