"""Whether a model in service is what somebody asks for, in how many devices its stages span as in the rest."""

from __future__ import annotations

import pytest

from coordinator.plan_match import does_for, other_model
from coordinator.planning.planner import make_plan
from layerline.layers_option import parse_layers
from layerline.plan import PlanRequest
from tests.fakes.worlds import device, model_spec, node, problem

NODES = (node("a", device("cpu:0"), device("cpu:1")), node("b"))
ASKED = PlanRequest(model="m", layers=parse_layers("a=0-9,b=10-29"), tensor_parallel=2)
PLAN = make_plan(problem(model_spec(), ASKED, NODES))


@pytest.mark.parametrize(("asked", "does"), [(0, True), (2, True), (1, False), (3, False)])
def test_the_widest_stage_spans_as_many_devices_as_asked_for(asked: int, does: bool):
    assert does_for(PLAN, PlanRequest(model="m", tensor_parallel=asked)) == does


def test_who_asks_for_something_else_is_told_what_there_is():
    assert "(a=0-9 over 2 devices, b=10-29)" in str(other_model(PLAN))
