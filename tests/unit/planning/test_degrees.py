"""How many devices of its node a stage spans, and why; each rank fits its own device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.planning.planner import make_plan
from layerline.errors import PlanDoesNotFitError, PlanInvalidError
from layerline.facts import ALL_REDUCE_BYTES, DeviceFacts, NodeFacts
from layerline.layers_option import parse_layers
from layerline.models.model_parts import model_parts
from layerline.models.sizes import ModelSizes
from layerline.models.spec import ModelSpec
from layerline.plan import Plan, StagePlan
from layerline.plan_request import PlanRequest
from tests.fakes.cards import model_card
from tests.fakes.worlds import MIB, device, layers_by_node, model_spec, node, problem

SMOLLM2 = model_spec()  # a layer takes 0.35 ms where 20 GB/s are read


def gpus(count: int, mib: int = 1024, gb_per_s: float = 20.0) -> list[DeviceFacts]:
    return [device(f"cuda:{place}", budget_bytes=mib * MIB, gb_per_s=gb_per_s) for place in range(count)]


def plan(*nodes: NodeFacts, spec: ModelSpec = SMOLLM2, **request: Any) -> Plan:
    return make_plan(problem(spec, PlanRequest(model="m", **request), nodes))


def degrees(made: Plan) -> list[tuple[str, int]]:
    return [(stage.node, len(stage.spec.devices)) for stage in made.stages]


def needed_bytes(stage: StagePlan, spec: ModelSpec) -> dict[str, int]:
    """What a stage takes of each device, by the figures that the ranks themselves load by."""
    held = stage.spec
    layers, tokens = range(held.first_layer, held.last_layer + 1), held.pages * held.page_tokens
    whole = ModelSizes.of_stage(model_card(spec), held)
    parts = [whole.of_rank(part) for part in model_parts(spec, len(held.devices), held.proportions)]
    return {
        name: part.weights_bytes(layers)
        + tokens * part.kv_bytes_per_token(layers)
        + part.workspace_bytes(held.max_rows, has_output=layers.stop == spec.layers)
        for name, part in zip(held.devices, parts, strict=True)
    }


def test_a_stage_that_fits_one_device_is_not_split_while_nothing_says_that_it_helps() -> None:
    (stage,) = plan(node("a", *gpus(2))).stages
    assert stage.spec.devices == ("cuda:0",)
    assert stage.why.endswith("one device, as the time of an all-reduce between 2 devices is not measured")
    unmeasured = node("a", *gpus(2, gb_per_s=0), all_reduce_us=1)
    assert degrees(plan(unmeasured)) == [("a", 1)]


def test_a_layer_is_split_where_that_was_measured_to_be_faster() -> None:
    (stage,) = plan(node("a", *gpus(2), all_reduce_us=20)).stages
    assert (stage.spec.devices, stage.spec.proportions) == (("cuda:0", "cuda:1"), ())
    times = "a token takes 13.5 ms on one and 8.39 ms on 2, with two all-reduces of 0.02 ms a layer"
    assert stage.why.endswith(f"2 devices, as {times}")


def test_a_layer_is_not_split_where_all_reduces_take_longer_than_they_save() -> None:
    (stage,) = plan(node("a", *gpus(2), all_reduce_us=200)).stages
    assert stage.spec.devices == ("cuda:0",)
    times = "a token takes 13.5 ms on one and 19.4 ms on 2, with two all-reduces of 0.2 ms a layer"
    assert stage.why.endswith(f"one device, as {times}")


def test_a_layer_is_split_for_much_more_room_where_it_costs_little() -> None:
    (stage,) = plan(node("a", *gpus(2, mib=600), all_reduce_us=106)).stages
    assert "2 devices, for KV pages of 27744 tokens where one device has room for 13184" in stage.why


def test_longer_rows_take_longer_to_sum() -> None:
    wide = model_spec(layers=2, hidden=8 * ALL_REDUCE_BYTES // 2, heads=32, kv_heads=8)
    (stage,) = plan(node("a", *gpus(2, mib=65536), all_reduce_us=20), spec=wide).stages
    assert "with two all-reduces of 0.16 ms" in stage.why


@pytest.mark.parametrize("all_reduce_us", [0.0, 1000.0])
def test_a_stage_too_large_for_one_device_spans_several_however_slow(all_reduce_us: float) -> None:
    made = plan(node("a", *gpus(2, mib=400), all_reduce_us=all_reduce_us))
    assert degrees(made) == [("a", 2)]
    assert "2 devices, as it takes 490 MiB on one device and none offers more than 400 MiB" in made.stages[0].why
    assert "2 devices of a offer 800 MiB" in made.notes[0]


def test_no_more_devices_are_taken_than_are_of_use() -> None:
    made = plan(node("a", *gpus(8, mib=350)), context_tokens=1024)
    assert degrees(made) == [("a", 1)]
    assert degrees(plan(node("a", *gpus(8, mib=250)), context_tokens=1024)) == [("a", 2)]


def test_nodes_of_unlike_degrees_hold_one_model() -> None:
    made = plan(node("a", *gpus(4, mib=130), all_reduce_us=50), node("b", mib=200))
    assert sorted(degrees(made)) == [("a", 4), ("b", 1)]
    assert made.notes[0].startswith("The model does not fit one node: over 4 devices of a it needs")


def test_a_degree_that_no_stage_would_have_is_refused_with_numbers() -> None:
    nodes = [node("a", *gpus(2, mib=50)), node("b", mib=1024)]
    assert degrees(plan(*nodes)) == [("b", 1)]
    with pytest.raises(PlanInvalidError, match=r"--tensor-parallel 2 cannot be followed: m fits .*\(a 100 MiB\)"):
        plan(*nodes, tensor_parallel=2)


def test_a_group_that_cannot_hold_the_stage_is_no_reason_against_one_device() -> None:
    (stage,) = plan(node("a", *gpus(1), device("cuda:1", budget_bytes=60 * MIB), all_reduce_us=20)).stages
    assert stage.spec.devices == ("cuda:0",)
    assert "all-reduce" not in stage.why


def test_a_group_whose_all_reduce_is_not_measured_is_not_said_to_be_of_unknown_speed() -> None:
    made = plan(node("a", *gpus(2, mib=250)), node("b", *gpus(2, mib=250)))
    groups = [stage for stage in made.stages if len(stage.spec.devices) > 1]
    assert groups
    assert all("so splitting counts as slower" in stage.why for stage in groups)
    assert not any("slowest measured" in stage.why for stage in made.stages)


def test_a_refusal_counts_the_workspace_of_every_device() -> None:
    with pytest.raises(PlanDoesNotFitError) as refused:
        plan(node("a", *gpus(4, mib=80)), node("b", mib=60), context_tokens=512)
    assert "needs 529 MiB over 2 nodes, and 2 nodes offer 380 MiB: a 320 MiB, b 60.0 MiB." in refused.value.message


def test_a_refusal_says_so_where_memory_would_do_but_is_in_pieces() -> None:
    small = [node(f"n{place}", mib=50) for place in range(8)]
    with pytest.raises(PlanDoesNotFitError, match=r"offer 400 MiB: .*, in pieces too large for what each offers"):
        plan(*small, context_tokens=512)


def test_what_cannot_be_even_is_said() -> None:
    nodes = (node("a", *gpus(2), all_reduce_us=20), node("b"))
    assert "On a: The 9 attention heads in 3 groups are split 6 + 3." in plan(*nodes).notes
    even = plan(*nodes, spec=model_spec(heads=8, kv_heads=4))
    assert not any("attention heads" in note for note in even.notes)


def test_devices_of_unlike_speed_share_by_it() -> None:
    parts = (device("cpu:0", gb_per_s=20), device("cpu:1", gb_per_s=40))
    (stage,) = plan(node("a", *parts, all_reduce_us=10)).stages
    assert (stage.spec.devices, stage.spec.proportions) == (("cpu:0", "cpu:1"), (500, 1000))


def test_devices_of_unlike_memory_share_by_it_where_equal_parts_do_not_fit() -> None:
    parts = (device("cpu:0", budget_bytes=400 * MIB), device("cpu:1", budget_bytes=200 * MIB))
    (stage,) = plan(node("a", *parts, all_reduce_us=10), context_tokens=4096).stages
    assert stage.spec.proportions == (1000, 500)


def test_devices_of_unlike_kind_are_not_put_together() -> None:
    mixed = node("a", device(budget_bytes=300 * MIB), *gpus(1, mib=300), all_reduce_us=1)
    with pytest.raises(PlanDoesNotFitError):
        plan(mixed, context_tokens=8192)


# --- as asked


def test_a_degree_asked_for_is_kept_though_slower() -> None:
    slow, fast = node("a", *gpus(2), all_reduce_us=900), node("a", *gpus(2), all_reduce_us=1)
    assert degrees(plan(slow, tensor_parallel=2)) == [("a", 2)]
    assert degrees(plan(fast, tensor_parallel=1)) == [("a", 1)]
    assert plan(slow, tensor_parallel=2).stages[0].why.endswith("2 devices, as --tensor-parallel says")


def test_of_more_devices_as_many_as_asked_for_are_taken_the_fastest_of_them() -> None:
    mixed = [replace(gpu, memory_bytes_per_s=speed * 1e9) for gpu, speed in zip(gpus(3), (20, 90, 90), strict=True)]
    assert plan(node("a", *mixed), tensor_parallel=2).stages[0].spec.devices == ("cuda:1", "cuda:2")


def test_nodes_with_fewer_devices_than_asked_for_take_part_only_where_the_others_do_not_suffice() -> None:
    quick = node("b", gb_per_s=90, mib=300)
    made = plan(node("a", *gpus(2)), quick, tensor_parallel=2)
    assert degrees(made) == [("a", 2)]
    assert "b is left out: it has no 2 devices of one kind, and the others hold the model." in made.notes
    assert sorted(degrees(plan(node("a", *gpus(2, mib=150)), quick, tensor_parallel=2))) == [("a", 2), ("b", 1)]


def test_more_devices_than_any_node_has_are_refused_with_the_numbers() -> None:
    nodes = (node("a", *gpus(2)), node("b"), node("c", *gpus(4), state="draining"))
    with pytest.raises(PlanInvalidError, match=r"3 needs a node with 3 devices of one kind, .* fewer: a 2, b 1") as why:
        plan(*nodes, tensor_parallel=3)
    assert "at most 2" in why.value.remedy
    with pytest.raises(PlanInvalidError, match="fewer: b 1"):
        plan(*nodes, tensor_parallel=2, layers=parse_layers("b=0-29"))


def test_more_devices_than_the_model_has_heads_are_refused_with_the_numbers() -> None:
    with pytest.raises(PlanInvalidError, match="3 attention heads cannot be split over 4 devices"):
        plan(node("a", *gpus(4)), tensor_parallel=4, spec=model_spec(heads=3))


def test_a_model_with_fewer_heads_than_there_are_devices_is_split_less() -> None:
    few = model_spec(heads=2, kv_heads=1)
    assert degrees(plan(node("a", *gpus(4, mib=260)), spec=few, context_tokens=1024)) == [("a", 2)]


def test_layers_given_by_hand_are_split_too() -> None:
    nodes = (node("a", *gpus(2)), node("b"))
    made = plan(*nodes, tensor_parallel=2, layers=parse_layers("a=0-9,b=10-29"))
    assert (layers_by_node(made), degrees(made)) == ([("a", 0, 9), ("b", 10, 29)], [("a", 2), ("b", 1)])
    assert made.stages[0].why == "as --layers says; 2 devices, as --tensor-parallel says"
    assert made.stages[1].why == "as --layers says"


def test_layers_given_by_hand_that_fit_no_number_of_devices_are_refused_with_what_all_offer() -> None:
    nodes = (node("a", *gpus(2, mib=50)), node("b"))
    with pytest.raises(PlanDoesNotFitError, match=r"layers 0-9 need .* and a offers 100 MiB"):
        plan(*nodes, layers=parse_layers("a=0-9,b=10-29"))
    with pytest.raises(PlanDoesNotFitError, match=r"layer 0 needs .* and a offers 2.0 MiB"):
        plan(node("a", *gpus(2, mib=1)), node("b"), layers=parse_layers("a=0,b=1-29"))


# --- whatever the world

DEVICE = st.tuples(st.sampled_from([60, 90, 150, 300]), st.sampled_from([0.0, 10.0, 20.0, 40.0]))
NODE = st.tuples(st.lists(DEVICE, min_size=1, max_size=5), st.sampled_from([0.0, 10.0, 80.0]))


@given(
    world=st.lists(NODE, min_size=1, max_size=3),
    heads=st.sampled_from([(9, 3), (14, 2), (4, 1)]),
    asked=st.sampled_from([0, 0, 1, 2, 3]),
)
def test_every_rank_fits_its_own_device(
    world: list[tuple[list[tuple[int, float]], float]], heads: tuple[int, int], asked: int
) -> None:
    spec = model_spec(layers=12, heads=heads[0], kv_heads=heads[1], vocabulary=16001)
    nodes = [
        node(
            f"n{place}",
            *(device(f"cpu:{i}", budget_bytes=mib * MIB, gb_per_s=speed) for i, (mib, speed) in enumerate(devices)),
            all_reduce_us=all_reduce_us,
        )
        for place, (devices, all_reduce_us) in enumerate(world)
    ]
    try:
        made = plan(*nodes, spec=spec, tensor_parallel=asked)
    except PlanDoesNotFitError:
        return
    except PlanInvalidError as refused:
        if "cannot be followed" in refused.message:  # the model fits, but no stage would span so many
            assert plan(*nodes, spec=spec).stages
        else:
            assert max(len(each.devices) for each in nodes) < asked
        return
    assert len({stage.spec.pages for stage in made.stages}) == 1
    assert not asked or max(count for _, count in degrees(made)) == asked
    for stage in made.stages:
        (owner,) = [each for each in nodes if each.node_id == stage.node_id]
        budgets = {each.device: each.budget_bytes for each in owner.devices}
        needed = needed_bytes(stage, spec)
        assert all(needed[name] <= budgets[name] for name in needed)
        assert stage.needed_bytes == sum(needed.values())
        assert stage.budget_bytes == sum(budgets[name] for name in needed)
    assert plan(*reversed(nodes), spec=spec, tensor_parallel=asked) == made
