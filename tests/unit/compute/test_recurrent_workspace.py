"""What torch takes for a recurrent layer is what plans count for it, and not much less."""

from __future__ import annotations

import pytest
import torch

from layerline.frames import PageRun, Span, StateRun
from layerline.models.recurrent import DeltaNetSpec, RecurrentSpec, ShortConvSpec
from layerline.models.workspace import NUMBER_BYTES, STATES_BYTES, recurrent_bytes
from node.model.recurrent.convolution import Convolution
from node.model.recurrent.delta_net import DeltaNet
from node.model.recurrent.recurrence import Recurrence
from node.model.recurrent.short_conv import ShortConv
from node.model.recurrent.slots import Slots
from tests.fakes.live_bytes import LiveBytes

SPECS: dict[str, RecurrentSpec] = {
    "delta net": DeltaNetSpec(value_heads=8, key_heads=4, key_dim=128, value_dim=128, taps=4),
    "many readers": DeltaNetSpec(value_heads=6, key_heads=1, key_dim=64, value_dim=96, taps=4),
    "single heads": DeltaNetSpec(value_heads=4, key_heads=4, key_dim=32, value_dim=128, taps=2),
    "convolution": ShortConvSpec(channels=256, taps=3),
}
ROWS = 192


def recurrence(spec: RecurrentSpec) -> Recurrence:
    convolution = Convolution(weight_CL=torch.randn(spec.conv_channels, spec.taps), bias_C=None)
    if isinstance(spec, ShortConvSpec):
        return ShortConv(spec=spec, convolution=convolution)
    assert isinstance(spec, DeltaNetSpec)
    return DeltaNet(
        spec=spec,
        convolution=convolution,
        decay_H=-torch.rand(spec.value_heads),
        step_bias_H=torch.rand(spec.value_heads),
        norm_P=torch.ones(spec.value_dim),
        norm_epsilon=1e-6,
    )


def taken(spec: RecurrentSpec, runs: list[int]) -> int:
    """The most bytes alive while so many rows of as many sequences are mixed."""
    slots = Slots([spec], len(runs), torch.device("cpu"))
    spans = [
        Span(
            sequence=slot,
            start=0,
            count=rows,
            pages=(PageRun(first=slot, count=1),),
            states=(StateRun(count=rows, source=None, target=slot),),
        )
        for slot, rows in enumerate(runs)
    ]
    step, mixer = slots.plan(spans), recurrence(spec)
    made_RM = torch.randn(sum(runs), spec.made_numbers, dtype=torch.bfloat16)
    live = LiveBytes()
    with torch.no_grad(), live:
        step.mixed(0, mixer, made_RM)
    return live.most


@pytest.mark.parametrize("runs", [[ROWS], [ROWS // 2] * 2, [1] * 64], ids=["one", "two", "rows"])
@pytest.mark.parametrize("name", SPECS)
def test_it_takes_no_more_than_is_counted(name: str, runs: list[int]) -> None:
    spec, rows = SPECS[name], sum(runs)
    counted = recurrent_bytes(spec, rows) + rows * (spec.made_numbers + spec.output_numbers) * NUMBER_BYTES
    assert taken(spec, runs) <= counted


def test_what_is_counted_for_a_long_run_is_not_much_more() -> None:
    spec = SPECS["delta net"]
    assert taken(spec, [512]) > 0.7 * (recurrent_bytes(spec, 512) - 2 * STATES_BYTES)


def test_the_states_of_many_sequences_are_not_all_copied_at_once() -> None:
    spec, runs = SPECS["delta net"], 3 * STATES_BYTES // (SPECS["delta net"].state_numbers * NUMBER_BYTES)
    assert taken(spec, [1] * runs) < 2.5 * STATES_BYTES
