"""Recurrent layers as data: their sizes, and how many slots of state go with so many pages."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from layerline.models.recurrent import DeltaNetSpec, Mamba2Spec, RecurrentSpec, ShortConvSpec
from layerline.models.slot_sizes import LEAST_SLOT_TOKENS, LEAST_SLOTS, slot_bytes, slot_tokens, slots_of
from layerline.models.spec import ModelSpec
from layerline.plain import noun_of
from tests.fakes.specs import decoder_spec, hybrid, windowed

CONV = ShortConvSpec(channels=64, taps=3)
DELTA = DeltaNetSpec(value_heads=4, key_heads=2, key_dim=8, value_dim=16, taps=4)
MAMBA = Mamba2Spec(heads=4, head_dim=16, groups=1, state_dim=8, taps=4)
MODEL = decoder_spec(layers=4)


@pytest.mark.parametrize(
    ("spec", "made", "channels", "output", "state"),
    [
        (CONV, 3 * 64, 64, 64, 2 * 64),
        (DELTA, 2 * 16 + 64 + 64 + 8, 96, 64, 3 * 96 + 4 * 8 * 16),
        (MAMBA, 64 + 80 + 4, 80, 64, 3 * 80 + 64 * 8),
    ],
)
def test_sizes_of_recurrent_layers(spec: RecurrentSpec, made: int, channels: int, output: int, state: int) -> None:
    assert (spec.made_numbers, spec.conv_channels, spec.output_numbers) == (made, channels, output)
    assert spec.state_numbers == state
    assert slot_bytes(spec) == 4 * state


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        (CONV, {"channels": 0}),
        (CONV, {"taps": 1}),
        (CONV, {"taps": 1000}),
        (DELTA, {"key_heads": 3}),
        (DELTA, {"key_dim": 1 << 40}),
        (MAMBA, {"groups": 3}),
    ],
)
def test_a_recurrent_layer_that_cannot_be_is_refused(spec: RecurrentSpec, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"range|multiple"):
        replace(spec, **changes)


@pytest.mark.parametrize("spec", [CONV, DELTA, MAMBA])
def test_a_model_with_recurrent_layers_comes_back_from_its_plain_form(spec: RecurrentSpec) -> None:
    model = hybrid(MODEL, spec)
    assert noun_of(ModelSpec, asdict(model)) == model
    assert model.is_recurrent
    assert not MODEL.is_recurrent


def test_a_model_of_recurrent_layers_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="no layer has attention"):
        hybrid(MODEL, CONV, every=5)


def test_only_windows_of_attention_count_for_how_far_rows_reach() -> None:
    assert hybrid(windowed(MODEL, 32), CONV).reach_tokens == 32
    assert hybrid(MODEL, CONV).reach_tokens == 0


def test_slots_take_about_as_much_memory_as_pages() -> None:
    model = hybrid(MODEL, DELTA)
    of_positions = 2 * 2 * 2 * 16 * 4  # two layers with keys and values of two heads
    assert slot_tokens(model, "float32") == max(LEAST_SLOT_TOKENS, -(-2 * slot_bytes(DELTA) // of_positions))
    large = hybrid(MODEL, replace(DELTA, key_dim=128, value_dim=128))
    tokens = slot_tokens(large, "float32")
    assert tokens > LEAST_SLOT_TOKENS
    assert slots_of(large, "float32", 10 * tokens) == LEAST_SLOTS + 10
    assert slots_of(large, "bfloat16", 10 * tokens) == LEAST_SLOTS + 5
    assert slots_of(MODEL, "float32", 10 * tokens) == 0
