"""Where every layer has a window a sequence takes the pages of its window; one layer without is enough to end that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.planning.adoption import adopt
from coordinator.planning.planner import make_plan
from layerline.facts import LoadedStage
from layerline.models.spec import ModelSpec
from layerline.plan_request import PlanRequest
from tests.fakes.specs import windowed
from tests.fakes.worlds import model_spec, node, problem

WINDOWED = windowed(model_spec(context_tokens=32768), 1024)
MIXED = windowed(model_spec(context_tokens=32768), 1024, 1)
ASKED = PlanRequest(model="m", context_tokens=16384)


@pytest.mark.parametrize(
    ("spec", "context_tokens", "pages"),
    [
        (WINDOWED, 16384, 97),  # 64 that a page's first row looks back to, and 33 that 512 rows can lie in
        (WINDOWED, 1024, 64),
        (MIXED, 16384, 1024),
    ],
)
def test_pages_of_a_sequence(spec: ModelSpec, context_tokens: int, pages: int) -> None:
    assert problem(spec, ASKED, ()).pages(context_tokens) == pages


def test_a_context_that_only_its_window_fits_is_planned_and_adopted() -> None:
    mib = 400  # 310 are weights and workspace; a page for every position would take 360 beside them
    nodes = (node("a", mib=mib),)
    made = make_plan(problem(WINDOWED, ASKED, nodes))
    stage = made.stages[0]
    assert made.context_tokens == 16384
    assert stage.spec.pages < 16384 // stage.spec.page_tokens
    loaded = LoadedStage(spec=stage.spec, weights_bytes=stage.weights_bytes, kv_bytes=stage.kv_bytes)
    again = adopt(problem(WINDOWED, ASKED, [replace(nodes[0], loaded=(loaded,))]))
    assert again is not None
    assert (again.context_tokens, again.stages[0].spec) == (16384, stage.spec)
