"""What recurrent layers hold of sequences is planned for: slots that there always are, and more with each page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.planning.footprint import FIRST, LAST, MIDDLE, PAGE_TOKENS, Ends, Footprint
from layerline.models.held import WeightForm
from layerline.models.recurrent import DeltaNetSpec, ShortConvSpec
from layerline.models.sizes import ModelSizes
from layerline.models.slot_sizes import LEAST_SLOTS, sequence_bytes, slot_bytes, slot_tokens, slots_of
from layerline.models.spec import ModelSpec
from tests.fakes.cards import model_card
from tests.fakes.specs import decoder_spec, hybrid

DENSE = decoder_spec(layers=8)
DELTA = DeltaNetSpec(value_heads=8, key_heads=4, key_dim=16, value_dim=32, taps=4)
CONV = ShortConvSpec(channels=64, taps=3)
KV_DTYPE = "float16"


def footprint(model: ModelSpec) -> Footprint:
    """That of a model with the weights of DENSE, whatever its layers hold of sequences."""
    sizes = ModelSizes.of(model_card(DENSE), WeightForm(dtype="float32", weights="float32", kernels=False), KV_DTYPE)
    held = [sequence_bytes(model.layer(layer), model, KV_DTYPE) for layer in range(model.layers)]
    slots, positions = zip(*held, strict=True)
    return Footprint(replace(sizes, model=model, slot_bytes=slots, kv_bytes=positions), max_rows=64)


def test_a_model_without_recurrent_layers_takes_pages_only() -> None:
    sizes = ModelSizes.of(model_card(DENSE), WeightForm(dtype="float32", weights="float32", kernels=False), KV_DTYPE)
    assert sizes.slot_bytes == (0,) * 8
    assert footprint(DENSE).kv_bytes(range(8), 10) == 10 * PAGE_TOKENS * sizes.kv_bytes_per_token(range(8))


@pytest.mark.parametrize("recurrent", [DELTA, CONV])
@pytest.mark.parametrize("pages", [1, 7, 1000])
def test_no_less_is_planned_for_slots_than_they_take_and_hardly_more(
    recurrent: DeltaNetSpec | ShortConvSpec, pages: int
) -> None:
    model, tokens = hybrid(DENSE, recurrent, every=4), pages * PAGE_TOKENS
    taken = slots_of(model, KV_DTYPE, tokens) * slot_bytes(recurrent)
    planned = footprint(model).kv_bytes(range(1), pages)
    assert taken <= planned <= taken + slot_bytes(recurrent) + tokens


def test_a_rank_plans_for_its_part_of_each_of_the_slots_of_the_whole_model() -> None:
    model = hybrid(DENSE, DELTA)
    half = replace(model.layer(0), mixer=replace(DELTA, value_heads=4, key_heads=2))
    fixed, position = sequence_bytes(half, model, KV_DTYPE)
    assert half.recurrent is not None
    assert fixed == LEAST_SLOTS * slot_bytes(half.recurrent)
    assert position == -(-slot_bytes(half.recurrent) // slot_tokens(model, KV_DTYPE))


@given(
    model=st.sampled_from([DENSE, hybrid(DENSE, DELTA), hybrid(DENSE, DELTA, 4), hybrid(DENSE, CONV, 4)]),
    budget_bytes=st.integers(0, 3 << 20),
    extra_mib=st.integers(0, 64),
    pages=st.integers(0, 60),
    ends=st.sampled_from([FIRST, MIDDLE, LAST]),
)
def test_the_longest_stage_and_the_most_pages_are_those_that_fit(
    model: ModelSpec, budget_bytes: int, extra_mib: int, pages: int, ends: Ends
) -> None:
    asked = footprint(model)
    budget_bytes += extra_mib << 20
    fixed = asked.workspace_bytes(ends) + asked.sizes.ends_bytes(first=ends.first, last=ends.last)

    def takes(start: int, stop: int) -> int:
        """Of layers of their own kind, wherever the ends of the model are."""
        layers = range(start, stop)
        held = sum(asked.sizes.layers[layer].held_bytes for layer in layers)
        return held + asked.kv_bytes(layers, pages) + fixed

    for stop, start in enumerate(asked.starts(budget_bytes, ends, pages)):
        fitting = [first for first in range(stop) if takes(first, stop) <= budget_bytes]
        assert start == min(fitting, default=stop)
    for layers in (range(8), range(1), range(3), range(2, 3), range(7, 8)):
        most = asked.most_pages(budget_bytes, layers)
        assert most == 0 or asked.needed_bytes(layers, most) <= budget_bytes
        assert asked.needed_bytes(layers, most + 1) > budget_bytes
    alone = [
        asked.sizes.layers[layer].held_bytes + asked.kv_bytes(range(layer, layer + 1), pages) for layer in range(8)
    ]
    assert asked.least_bytes(pages) == min(alone) + asked.workspace_bytes(MIDDLE)
