"""Planning counts the pages that a stage has of layers that are not its own, and what rows carry."""

from __future__ import annotations

import pytest

from coordinator.planning.choices import plan_for
from coordinator.planning.footprint import FIRST, LAST, MIDDLE, Ends, Footprint, rows_of_a_step
from coordinator.stats.route import Route
from layerline.models.held import WeightForm
from layerline.models.row_layout import row_into, widest_row
from layerline.models.sizes import ModelSizes
from layerline.plan_request import ManualStage, PlanRequest
from tests.fakes.cards import model_card
from tests.fakes.sharing import sharing
from tests.fakes.worlds import model_spec, node

PLAIN = model_spec(layers=8, hidden=64, intermediate=96, heads=4, kv_heads=2, vocabulary=256)
MODEL = sharing(PLAIN, 4, token_input=8)
FORM = WeightForm(dtype="float32", weights="float32", kernels=False)
PAGES = 64


def footprint() -> Footprint:
    return Footprint(ModelSizes.of(model_card(MODEL), FORM, "float32"), 32)


@pytest.mark.parametrize("ends", [FIRST, MIDDLE, LAST])
def test_the_longest_stages_are_those_that_fit(ends: Ends) -> None:
    """As trying all of them finds."""
    own = footprint()
    layers = range(len(own.sizes.layers))
    fixed = own.sizes.ends_bytes(first=ends.first, last=ends.last) + own.workspace_bytes(ends)

    def held(start: int, stop: int) -> int:
        weights = sum(own.sizes.layers[layer].held_bytes for layer in range(start, stop))
        return weights + own.kv_bytes(range(start, stop), PAGES)

    whole = held(0, len(layers))
    for budget in range(fixed, fixed + whole + 1000, whole // 57):
        expected = [
            next((start for start in range(stop) if held(start, stop) + fixed <= budget), stop)
            for stop in range(len(layers) + 1)
        ]
        assert own.starts(budget, ends, PAGES).tolist() == expected


def test_pages_of_layers_outside_are_counted() -> None:
    own = footprint()
    page = own.kv_bytes(range(1), 1)
    assert page > 0
    counted = [
        own.kv_bytes(layers, 1) // page for layers in (range(8), range(4), range(4, 8), range(7, 8), range(3, 5))
    ]
    assert counted == [4, 4, 2, 1, 2]
    assert own.most_pages(own.needed_bytes(range(7, 8), 9), range(7, 8)) == 9


def test_steps_have_as_many_rows_as_the_widest_allow() -> None:
    plain = model_spec(layers=8, hidden=4096, heads=32, kv_heads=32)
    assert widest_row(sharing(plain, 4)) == 4096 + 2 * 4096
    assert (rows_of_a_step(plain, "float32"), rows_of_a_step(sharing(plain, 4), "float32")) == (256, 64)


def test_a_plan_and_its_links() -> None:
    by_hand = tuple(
        ManualStage(node=n, first_layer=f, last_layer=e) for n, f, e in (("a", 0, 2), ("b", 3, 5), ("c", 6, 7))
    )
    request = PlanRequest(model="m", dtype="float32", layers=by_hand)
    plan = plan_for(model_card(MODEL), request, [node(stage.node) for stage in by_hand])
    (pipeline,) = plan.pipelines
    for stage in pipeline.stages:
        pages = stage.spec.pages * stage.spec.page_tokens
        layers = range(stage.spec.first_layer, stage.spec.last_layer + 1)
        sizes = ModelSizes.of_stage(model_card(MODEL), stage.spec)
        assert stage.kv_bytes == pages * sizes.kv_bytes_per_token(layers)
    route = Route.of("m", pipeline, MODEL)
    rows = [row_into(MODEL, stage.spec.first_layer) for stage in pipeline.stages[1:]]
    assert route.row_bytes == tuple(4 * row.numbers + 4 for row in rows)
