"""Whether a model in service is what somebody asks for, in how many devices its stages span as in the rest."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.plan_match import does_for, other_model
from coordinator.planning.planner import make_plan
from layerline.layers_option import parse_layers
from layerline.plan_request import PlanRequest
from tests.fakes.worlds import device, model_spec, node, problem

NODES = (node("a", device("cpu:0"), device("cpu:1")), node("b"))
ASKED = PlanRequest(model="m", layers=parse_layers("a=0-9,b=10-29"), tensor_parallel=2)
PLAN = make_plan(problem(model_spec(), ASKED, NODES))


@pytest.mark.parametrize(("asked", "does"), [(0, True), (2, True), (1, False), (3, False)])
def test_the_widest_stage_spans_as_many_devices_as_asked_for(asked: int, does: bool) -> None:
    assert does_for(PLAN, PlanRequest(model="m", tensor_parallel=asked)) == does


def test_who_asks_for_something_else_is_told_what_there_is() -> None:
    assert "(a=0-9 over 2 devices, b=10-29)" in str(other_model(PLAN))


@pytest.mark.parametrize(
    ("changes", "does"),
    [
        ({}, True),
        ({"dtype": "bfloat16", "weights": "bfloat16", "kv_dtype": "bfloat16"}, True),
        ({"dtype": "float32"}, False),
        ({"weights": "float32"}, False),
        ({"kv_dtype": "int8"}, False),
    ],
)
def test_what_is_not_said_is_taken_as_it_is(changes: dict[str, Any], does: bool) -> None:
    assert does_for(PLAN, PlanRequest(model="m", **changes)) == does


def test_whoever_does_not_say_gets_what_another_dtype_is_served_in() -> None:
    served = make_plan(problem(model_spec(), PlanRequest(model="m", dtype="float32"), NODES))
    assert does_for(served, PlanRequest(model="m"))
    assert not does_for(served, PlanRequest(model="m", dtype="bfloat16"))


@pytest.mark.parametrize(
    ("asked", "resolved"),
    [
        ({}, ("bfloat16", "bfloat16", "bfloat16")),
        ({"dtype": "float32"}, ("float32", "float32", "float32")),
        ({"weights": "float32"}, ("float32", "float32", "float32")),
        ({"kv_dtype": "int8"}, ("bfloat16", "bfloat16", "int8")),
    ],
)
def test_what_is_not_said_of_a_model_that_is_to_be_loaded(asked: dict[str, Any], resolved: tuple[str, ...]) -> None:
    request = PlanRequest(model="m", **asked).resolved("torch")
    assert (request.dtype, request.weights, request.kv_dtype) == resolved
    plan = make_plan(problem(model_spec(), PlanRequest(model="m", **asked), NODES))
    assert (plan.dtype, plan.weights, plan.kv_dtype) == resolved
    assert {(s.spec.dtype, s.spec.weights, s.spec.kv_dtype) for s in plan.stages} == {resolved}
