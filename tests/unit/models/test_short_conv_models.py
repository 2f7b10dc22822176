"""LFM2 in GGUF: which layers are convolutions, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from layerline.errors import ModelError
from layerline.models.families.lfm2 import FAMILY
from layerline.models.fields import Fields
from layerline.models.gguf_fields import GgufModel
from layerline.models.gguf_rope import RopeTensors
from layerline.models.spec import ModelSpec
from tests.fakes.made_models import GGUF_SIZES

KV_HEADS = "attention.head_count_kv"
METADATA: dict[str, object] = {**GGUF_SIZES, "shortconv.l_cache": 3, KV_HEADS: [0, 2, 0, 2]}


def spec_of(**changes: object) -> ModelSpec:
    values = {f"lfm2.{key}": value for key, value in {**METADATA, **changes}.items()}
    fields = Fields({**values, "tokenizer.ggml.tokens": ["a"] * 10}, "a.gguf")
    assert FAMILY.from_gguf is not None
    return FAMILY.from_gguf(
        GgufModel(metadata=fields, architecture="lfm2", tensors=frozenset(), rope_tensors=RopeTensors())
    )


def test_layers_without_key_value_heads_are_convolutions() -> None:
    spec = spec_of()
    assert [spec.layer(layer).recurrent is not None for layer in range(4)] == [True, False, True, False]
    assert spec.layer(1).attention.kv_heads == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attention.sliding_window": 16}, "a sliding window beside convolutions"),
        ({KV_HEADS: [0, 2, 0, 1]}, "differs among the layers with attention"),
        ({KV_HEADS: [0, 0, 0, 0]}, "differs among the layers with attention"),
        ({KV_HEADS: [0, 2]}, "differs among the layers with attention"),
        ({KV_HEADS: 2}, KV_HEADS),
        ({"shortconv.l_cache": 1}, "taps out of range"),
        ({"shortconv.l_cache": "3"}, r"shortconv\.l_cache"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises((ModelError, ValueError), match=reason):
        spec_of(**changes)
