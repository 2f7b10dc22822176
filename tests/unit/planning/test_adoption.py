"""What nodes have loaded is taken over when it is the whole model and does for the request, and not otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.planning.adoption import adopt
from coordinator.planning.planner import make_plan
from layerline.errors import PlanInvalidError
from layerline.facts import LoadedStage, NodeFacts
from layerline.layers_option import parse_layers
from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.plan import Plan
from layerline.plan_request import PlanRequest
from tests.fakes.worlds import MIB, device, layers_by_node, model_spec, node, problem

SPEC = model_spec()
ORIGINAL_TOKENS = 1024
IDLE = (node("a", mib=400), node("b", mib=400))


def rotated_otherwise_when_long() -> ModelSpec:
    """A model that turns its pairs otherwise in a context of more than ORIGINAL_TOKENS."""
    rope = RopeSpec(
        theta=1e4,
        scaling="longrope",
        original_context_tokens=ORIGINAL_TOKENS,
        divisors=(1.0,) * 32,
        long_divisors=(2.0,) * 32,
    )
    (kind,) = SPEC.kinds
    return replace(SPEC, kinds=(LayerSpec(mixer=replace(kind.attention, rope=rope), feed_forward=kind.feed_forward),))


def with_loaded(nodes: tuple[NodeFacts, ...], plan: Plan) -> tuple[NodeFacts, ...]:
    """The nodes as they are once `plan` has been loaded."""
    loaded = {
        stage.node_id: (LoadedStage(spec=stage.spec, weights_bytes=stage.weights_bytes, kv_bytes=stage.kv_bytes),)
        for stage in plan.stages
    }
    return tuple(replace(each, loaded=loaded.get(each.node_id, ())) for each in nodes)


def made(nodes: tuple[NodeFacts, ...] = IDLE, spec: ModelSpec = SPEC, **request: Any) -> Plan:
    return make_plan(problem(spec, PlanRequest(model="m", **request), nodes))


def adopted(
    nodes: tuple[NodeFacts, ...], digest: str = "digest", spec: ModelSpec = SPEC, **request: Any
) -> Plan | None:
    return adopt(problem(spec, PlanRequest(model="m", **request), nodes, digest=digest))


def test_a_loaded_plan_is_adopted_exactly() -> None:
    plan = made()
    again = adopted(with_loaded(IDLE, plan))
    assert again is not None
    assert [stage.spec for stage in again.stages] == [stage.spec for stage in plan.stages]
    assert again.context_tokens == plan.context_tokens
    assert [stage.budget_bytes for stage in again.stages] == [stage.budget_bytes for stage in plan.stages]
    assert "loaded already on" in again.notes[0]


def test_a_plan_with_a_shortened_context_is_adopted_with_it() -> None:
    nodes = (node("a", mib=270), node("b", mib=270))
    plan = made(nodes)
    again = adopted(with_loaded(nodes, plan))
    assert again is not None
    assert plan.context_tokens < 8192
    assert again.context_tokens == plan.context_tokens


def test_a_spare_node_does_not_hinder_adoption() -> None:
    nodes = with_loaded(IDLE, made())
    again = adopted((*nodes, node("c", mib=8192, gb_per_s=500)))
    assert again is not None
    assert {name for name, _, _ in layers_by_node(again)} == {"a", "b"}


def test_of_two_loaded_replicas_one_is_taken_whatever_the_order() -> None:
    nodes = (*with_loaded(IDLE, made()),)
    copies = tuple(replace(each, name=f"z{each.name}", node_id=f"z{each.node_id}") for each in nodes)
    again = adopted((*copies, *nodes))
    assert again is not None
    assert {name for name, _, _ in layers_by_node(again)} == {"a", "b"}
    assert adopted((*nodes, *copies)) == again


@pytest.mark.parametrize(
    ("request_changes", "digest"),
    [
        ({"dtype": "float32"}, "digest"),
        ({"kv_dtype": "int8"}, "digest"),
        ({}, "another digest"),
        ({"context_tokens": 8192}, "digest"),
    ],
)
def test_what_does_not_do_for_the_request_is_not_adopted(request_changes: dict[str, Any], digest: str) -> None:
    nodes = with_loaded(IDLE, made(context_tokens=1000))
    assert adopted(nodes, digest, **request_changes) is None


def test_a_shorter_context_than_the_loaded_one_is_satisfied_by_it() -> None:
    again = adopted(with_loaded(IDLE, made()), context_tokens=1000)
    assert again is not None
    assert again.context_tokens == 1000


def test_keys_and_values_as_they_would_be_anyway_may_be_asked_for() -> None:
    again = adopted(with_loaded(IDLE, made()), kv_dtype="bfloat16")
    assert again is not None
    assert again.kv_dtype == "bfloat16"


def test_half_a_model_is_not_adopted() -> None:
    nodes = with_loaded(IDLE, made())
    assert adopted(nodes[:1]) is None
    assert adopted((nodes[0], IDLE[1])) is None
    assert adopted(IDLE) is None


def test_a_stage_of_another_cut_is_not_adopted() -> None:
    one = with_loaded(IDLE, made(layers=parse_layers("a=0-9,b=10-29")))
    other = with_loaded(IDLE, made(layers=parse_layers("a=0-12,b=13-29")))
    assert adopted((one[0], other[1])) is None


def test_stages_with_unlike_pages_are_not_adopted() -> None:
    layers = parse_layers("a=0-9,b=10-29")
    one = with_loaded(IDLE, made(context_tokens=512, layers=layers))
    other = with_loaded(IDLE, made(context_tokens=1024, layers=layers))
    assert adopted(one) is not None
    assert adopted((one[0], other[1])) is None


def test_a_node_that_is_draining_is_not_adopted() -> None:
    nodes = with_loaded(IDLE, made())
    assert adopted((nodes[0], replace(nodes[1], state="draining"))) is None


def test_layers_given_by_hand_must_be_the_loaded_ones() -> None:
    nodes = with_loaded(IDLE, made(layers=parse_layers("a=0-12,b=13-29")))
    again = adopted(nodes, layers=parse_layers("a=0-12,b=13-29"))
    assert again is not None
    assert layers_by_node(again) == [("a", 0, 12), ("b", 13, 29)]
    assert adopted(nodes, layers=parse_layers("a=0-11,b=12-29")) is None


def test_layers_given_by_hand_are_checked_before_anything_is_adopted() -> None:
    with pytest.raises(PlanInvalidError, match="to no node"):
        adopted(IDLE, layers=parse_layers("a=0-11"))


GPUS = (device("cuda:0", budget_bytes=400 * MIB), device("cuda:1", budget_bytes=200 * MIB))
SPLIT = (node("a", *GPUS, all_reduce_us=10),)


def test_a_stage_over_several_devices_is_adopted_with_their_shares() -> None:
    plan = made(SPLIT, context_tokens=4096)
    again = adopted(with_loaded(SPLIT, plan), context_tokens=4096)
    assert again is not None
    (stage,) = again.stages
    assert (stage.spec.devices, stage.spec.proportions) == (("cuda:0", "cuda:1"), (1000, 500))
    assert stage.budget_bytes == 600 * MIB
    assert (stage.weights_bytes, stage.kv_bytes) == (plan.stages[0].weights_bytes, plan.stages[0].kv_bytes)


@pytest.mark.parametrize(("loaded_over", "asked", "is_adopted"), [(2, 2, True), (2, 1, False), (1, 2, False)])
def test_a_stage_over_more_or_fewer_devices_than_asked_for_is_not_adopted(
    loaded_over: int, asked: int, is_adopted: bool
) -> None:
    plan = made(SPLIT, context_tokens=512, tensor_parallel=loaded_over)
    assert len(plan.stages[0].spec.devices) == loaded_over
    again = adopted(with_loaded(SPLIT, plan), context_tokens=512, tensor_parallel=asked)
    assert (again is not None) == is_adopted


def test_of_stages_with_unlike_degrees_the_widest_is_what_was_asked_for() -> None:
    nodes = (node("a", *GPUS), node("b", mib=400))
    plan = made(nodes, tensor_parallel=2, layers=parse_layers("a=0-9,b=10-29"))
    assert adopted(with_loaded(nodes, plan), tensor_parallel=2) is not None
    assert adopted(with_loaded(nodes, plan)) is not None
    assert adopted(with_loaded(nodes, plan), tensor_parallel=1) is None


def test_a_stage_on_a_device_that_its_node_does_not_offer_any_more_is_not_adopted() -> None:
    (both,) = with_loaded(SPLIT, made(SPLIT, context_tokens=4096))
    assert adopted((replace(both, devices=GPUS[:1]),), context_tokens=4096) is None


def test_a_stage_of_another_rotation_is_not_adopted() -> None:
    spec = rotated_otherwise_when_long()
    longer, short = (made(spec=spec, context_tokens=tokens) for tokens in (4 * ORIGINAL_TOKENS, ORIGINAL_TOKENS))
    assert {stage.spec.long_context for stage in longer.stages} == {True}
    assert {stage.spec.long_context for stage in short.stages} == {False}
    nodes = with_loaded(IDLE, longer)
    assert adopted(nodes, spec=spec, context_tokens=ORIGINAL_TOKENS) is None
    for tokens in (ORIGINAL_TOKENS + 1, 4 * ORIGINAL_TOKENS):
        assert adopted(nodes, spec=spec, context_tokens=tokens) is not None
    nodes = with_loaded(IDLE, short)
    assert adopted(nodes, spec=spec, context_tokens=ORIGINAL_TOKENS + 1) is None
    assert adopted(nodes, spec=spec, context_tokens=ORIGINAL_TOKENS) is not None
    assert not any(stage.spec.long_context for stage in made().stages)


def test_of_a_context_to_be_chosen_one_of_the_loaded_rotation_is() -> None:
    spec = rotated_otherwise_when_long()
    again = adopted(with_loaded(IDLE, made(spec=spec, context_tokens=ORIGINAL_TOKENS)), spec=spec)
    assert again is not None
    assert again.context_tokens == ORIGINAL_TOKENS
