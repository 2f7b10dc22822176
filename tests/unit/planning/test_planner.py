"""Given this world, expect this plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.planning.footprint import PAGE_TOKENS, rows_of_a_step
from coordinator.planning.planner import make_plan
from layerline.errors import PlanDoesNotFitError, UsageError
from layerline.facts import NodeFacts
from layerline.layers_option import parse_layers
from layerline.models.spec import ModelSpec
from layerline.plan import Plan
from layerline.plan_request import PlanRequest
from tests.fakes.specs import of_layers
from tests.fakes.worlds import GIB, MIB, device, layers_by_node, model_spec, node, problem

SMOLLM2 = model_spec()


def plan(*nodes: NodeFacts, spec: ModelSpec = SMOLLM2, **request: Any) -> Plan:
    return make_plan(problem(spec, PlanRequest(model="m", **request), nodes))


def whole_mib(spec: ModelSpec, context_tokens: int) -> int:
    asked = problem(spec, PlanRequest(model="m"), ())
    return -(-asked.footprint.needed_bytes(asked.footprint.layers, asked.pages(context_tokens)) // MIB)


def test_a_model_that_fits_one_node_is_not_split() -> None:
    made = plan(node("a"), node("b"))
    assert layers_by_node(made) == [("a", 0, 29)]
    assert any("so it is not split" in note for note in made.notes)
    assert "b is left out: the model fits a alone." in made.notes


def test_the_fastest_node_that_fits_takes_the_whole_model() -> None:
    nodes = [node("fast", mib=100, gb_per_s=99), node("good", gb_per_s=50), node("slow", gb_per_s=20)]
    assert layers_by_node(plan(*nodes)) == [("good", 0, 29)]


def test_equal_nodes_share_evenly_with_the_output_matrix_weighed() -> None:
    """The output matrix costs a token as much as eight layers, so the node that has it takes eight fewer."""
    made = plan(node("a", mib=400), node("b", mib=400))
    assert layers_by_node(made) == [("a", 0, 18), ("b", 19, 29)]


def test_three_equal_nodes_share_evenly() -> None:
    spec = model_spec(layers=30, vocabulary=16)
    made = plan(node("a", mib=300), node("b", mib=300), node("c", mib=300), spec=spec)
    assert layers_by_node(made) == [("a", 0, 9), ("b", 10, 19), ("c", 20, 29)]


def test_unequal_nodes_share_by_speed() -> None:
    spec = model_spec(layers=30, vocabulary=16)
    made = plan(node("a", mib=400, gb_per_s=30), node("b", mib=400, gb_per_s=20), spec=spec)
    assert layers_by_node(made) == [("b", 0, 11), ("a", 12, 29)]


def test_memory_limits_what_speed_would_give() -> None:
    spec = model_spec(layers=30, vocabulary=16)
    made = plan(node("fast", mib=200, gb_per_s=90), node("slow", mib=400, gb_per_s=20), spec=spec)
    fast, slow = sorted(made.stages, key=lambda stage: stage.node)
    asked = problem(spec, PlanRequest(model="m"), ())
    fast_layers = fast.spec.last_layer - fast.spec.first_layer + 1
    pages = asked.pages(made.context_tokens)
    one_more_bytes = asked.footprint.sizes.layers[0].held_bytes + asked.footprint.kv_bytes(range(1), pages)
    assert fast.needed_bytes <= 200 * MIB < fast.needed_bytes + one_more_bytes
    assert fast_layers < 15
    assert "as many layers as it has memory for" in fast.why
    assert slow.spec.last_layer - slow.spec.first_layer + 1 == 30 - fast_layers


def test_a_node_that_would_only_slow_the_others_down_is_left_out() -> None:
    made = plan(node("a", mib=400), node("b", mib=400), node("snail", mib=400, gb_per_s=1))
    assert {name for name, _, _ in layers_by_node(made)} == {"a", "b"}
    assert any(note.startswith("snail is left out: it would only slow the others down") for note in made.notes)


def test_a_slow_node_is_used_where_the_model_does_not_fit_without() -> None:
    made = plan(node("a", mib=400), node("snail", mib=400, gb_per_s=1))
    assert {name for name, _, _ in layers_by_node(made)} == {"a", "snail"}


def test_a_node_too_small_for_one_layer_is_left_out_with_that_reason() -> None:
    made = plan(node("a", mib=512), node("b", mib=512), node("tiny", mib=40))
    assert any("tiny is left out: the 40.0 MiB it offers are too little for one layer" in n for n in made.notes)


@pytest.mark.parametrize("state", ["starting", "draining"])
def test_a_node_that_is_not_ready_is_left_out_with_that_reason(state: str) -> None:
    made = plan(node("a"), node("b", mib=4096, gb_per_s=90, state=state))
    assert layers_by_node(made) == [("a", 0, 29)]
    assert f"b is left out: it is {state}." in made.notes


def test_speeds_within_the_noise_of_measuring_count_as_equal() -> None:
    spec = model_spec(layers=30, vocabulary=16)
    steady = layers_by_node(plan(node("a", mib=400), node("b", mib=400), spec=spec))
    for gb_per_s in (18.0, 22.0):
        assert layers_by_node(plan(node("a", mib=400), node("b", mib=400, gb_per_s=gb_per_s), spec=spec)) == steady


def test_an_unmeasured_node_is_taken_to_be_as_slow_as_the_slowest() -> None:
    spec = model_spec(layers=28, vocabulary=16)
    nodes = [node("a", mib=400, gb_per_s=3), node("b", mib=400, gb_per_s=2), node("new", mib=400, gb_per_s=0)]
    shares = {name: last - first for name, first, last in layers_by_node(plan(*nodes, spec=spec))}
    assert shares["b"] == shares["new"] < shares["a"]


def test_unmeasured_nodes_share_evenly_and_nothing_is_promised() -> None:
    spec = model_spec(layers=30, vocabulary=16)
    made = plan(node("a", mib=400, gb_per_s=0), node("b", mib=400, gb_per_s=0), spec=spec)
    assert layers_by_node(made) == [("a", 0, 14), ("b", 15, 29)]
    assert not any("tokens/s" in note for note in made.notes)
    assert all("not measured yet" in stage.why for stage in made.stages)


def test_a_node_not_measured_yet_is_named_with_what_follows() -> None:
    made = plan(node("a"), node("new", gb_per_s=0))
    (note,) = [note for note in made.notes if "not measured" in note]
    expected = (
        "The speed of new is not measured yet: it is taken to be the slowest that is, and new may have fewer layers"
    )
    assert note.startswith(expected)


def test_where_nothing_is_measured_that_is_said_once() -> None:
    notes = plan(node("a", mib=400, gb_per_s=0), node("b", mib=400, gb_per_s=0)).notes
    assert notes.count("No speed is measured yet: all devices are taken to be equally fast.") == 1
    assert not any("is taken to be the slowest" in note for note in notes)


def test_a_node_measured_while_it_was_busy_is_named_with_what_follows() -> None:
    busy = node("b", device("cpu:0", measured_while_busy=True), device("cpu:1"))
    (note,) = [note for note in plan(node("a"), busy).notes if "other programs ran" in note]
    assert note.startswith("The speed of cpu:0 of b was measured while other programs ran there: it may be faster")
    assert "fewer layers than it could" in note


def test_where_there_is_one_device_its_speed_decides_nothing_and_is_not_mentioned() -> None:
    notes = plan(node("a", device(measured_while_busy=True, gb_per_s=0))).notes
    assert not any("speed" in note for note in notes)


def test_a_refusal_says_who_was_left_out_and_why() -> None:
    nodes = [node("a", mib=100), node("b", state="starting"), node("c", mib=10)]
    asked = problem(SMOLLM2, PlanRequest(model="m"), nodes, notes=["d cannot be used: it does not answer."])
    with pytest.raises(PlanDoesNotFitError) as refused:
        make_plan(asked)
    assert refused.value.message.endswith(" b is left out: it is starting. d cannot be used: it does not answer.")


def test_what_is_known_beside_is_told_with_the_plan() -> None:
    asked = problem(SMOLLM2, PlanRequest(model="m"), [node("a")], notes=["d cannot be used: it does not answer."])
    assert make_plan(asked).notes[-1] == "d cannot be used: it does not answer."


def test_layers_of_unlike_size_are_shared_by_what_they_cost() -> None:
    """Ten layers with feed-forwards of four times the width behind twenty: half of the cost lies in fewer layers."""
    layers = [SMOLLM2.layer(0)] * 20
    wide = replace(layers[0], feed_forward=replace(layers[0].feed_forward, intermediate=4 * 1536))
    spec = of_layers(model_spec(vocabulary=16), [*layers, *[wide] * 10])
    sizes = problem(spec, PlanRequest(model="m"), ()).footprint.sizes
    assert sizes.layers[29].held_bytes - sizes.layers[0].held_bytes == 2 * 3 * 576 * 3 * 1536
    ((_, _, last), _) = layers_by_node(plan(node("a", mib=600), node("b", mib=600), spec=spec))
    costs = [layer.held_bytes for layer in sizes.layers]
    halves = sum(costs[: last + 1]), sum(costs[last + 1 :])
    assert abs(halves[0] - halves[1]) <= max(costs)
    assert last > 18


def test_compute_counts_where_it_was_measured() -> None:
    fast = node("fast", device(gb_per_s=20, tflops=2))
    slow = node("a-slow", device(gb_per_s=20, tflops=0.02))
    assert layers_by_node(plan(fast, slow)) == [("fast", 0, 29)]


def test_the_fastest_device_of_a_node_that_fits_is_taken() -> None:
    gpus = (device("cuda:0", budget_bytes=GIB, gb_per_s=900), device("cuda:1", budget_bytes=GIB, gb_per_s=1800))
    made = plan(node("a", device(budget_bytes=9 * GIB), *gpus))
    assert made.stages[0].spec.devices == ("cuda:1",)
    small = device("cuda:0", budget_bytes=64 * MIB, gb_per_s=900)
    assert plan(node("a", small, device())).stages[0].spec.devices == ("cpu",)


def test_pages_are_the_same_on_all_stages_and_no_more_than_the_tightest_has_room_for() -> None:
    made = plan(node("a", mib=512), node("b", mib=260))
    pages = {stage.spec.pages for stage in made.stages}
    assert len(pages) == 1
    assert 8192 <= pages.pop() * PAGE_TOKENS < 2 * 8192


def test_a_short_memory_halves_the_context_and_says_so() -> None:
    mib = whole_mib(SMOLLM2, 2048)
    made = plan(node("a", mib=mib))
    assert made.context_tokens == 2048
    assert any("2048 tokens instead of 8192" in note for note in made.notes)


def test_nodes_are_joined_rather_than_the_context_shortened() -> None:
    made = plan(node("a", mib=whole_mib(SMOLLM2, 2048)), node("b", mib=whole_mib(SMOLLM2, 2048)))
    assert (len(made.stages), made.context_tokens) == (2, 8192)


def test_a_model_of_short_context_keeps_it() -> None:
    assert plan(node("a"), spec=model_spec(context_tokens=300)).context_tokens == 300


def test_the_context_asked_for_is_kept_or_refused() -> None:
    mib = whole_mib(SMOLLM2, 2048)
    assert plan(node("a", mib=mib), context_tokens=2000).context_tokens == 2000
    with pytest.raises(PlanDoesNotFitError, match="context of 4096 tokens"):
        plan(node("a", mib=mib), context_tokens=4096)


def test_a_context_beyond_what_the_model_was_trained_for_is_refused() -> None:
    with pytest.raises(UsageError, match="9000 tokens is more than the 8192"):
        plan(node("a"), context_tokens=9000)


def test_a_refusal_names_what_is_needed_and_what_each_node_offers() -> None:
    with pytest.raises(PlanDoesNotFitError) as refused:
        plan(node("a", mib=100), node("b", mib=80), node("tiny", mib=10))
    assert "over 2 nodes, and 3 nodes offer 190 MiB: a 100 MiB, b 80.0 MiB, tiny 10.0 MiB" in refused.value.message
    assert "weights take 257 MiB in bfloat16" in refused.value.message
    assert "--memory" in refused.value.remedy
    assert "--context" in refused.value.remedy


def test_without_any_ready_node_the_refusal_says_so() -> None:
    with pytest.raises(PlanDoesNotFitError, match="0 nodes offer 0 B: none is ready"):
        plan(node("a", state="starting"))


@pytest.mark.parametrize(
    ("hidden", "dtype", "rows"), [(576, "bfloat16", 512), (8192, "bfloat16", 256), (8192, "float32", 128)]
)
def test_a_step_has_as_many_rows_as_fit_a_frame(hidden: int, dtype: str, rows: int) -> None:
    assert rows_of_a_step(model_spec(hidden=hidden), dtype) == rows


def test_keys_and_values_in_int8_leave_room_for_more_pages_and_a_longer_context() -> None:
    tight = node("a", mib=whole_mib(SMOLLM2, 4096) + 16)
    made, small = plan(tight), plan(tight, kv_dtype="int8")
    (stage,), (small_stage,) = made.stages, small.stages
    assert (made.context_tokens, small.context_tokens) == (4096, 8192)
    assert (made.kv_dtype, small.kv_dtype) == ("bfloat16", "int8")
    assert (stage.spec.kv_dtype, small_stage.spec.kv_dtype) == ("bfloat16", "int8")
    page_bytes = 16 * 30 * 2 * 3 * (64 + 2 * 2)
    assert small_stage.kv_bytes == small_stage.spec.pages * page_bytes
    assert small_stage.needed_bytes <= small_stage.budget_bytes


def test_a_model_of_one_layer_is_not_cut() -> None:
    with pytest.raises(PlanDoesNotFitError):
        plan(node("a", mib=90), node("b", mib=90), spec=model_spec(layers=1))


def test_layers_given_by_hand_are_obeyed() -> None:
    made = plan(node("a"), node("b"), layers=parse_layers("b=0-3,a=4-29"))
    assert layers_by_node(made) == [("b", 0, 3), ("a", 4, 29)]


def test_twenty_unlike_nodes_hold_a_model_of_126_layers() -> None:
    spec = model_spec(layers=126, hidden=16384, intermediate=53248, heads=128, kv_heads=8, vocabulary=128256)
    nodes = [node(f"n{i}", mib=40960 + 3000 * i, gb_per_s=100 * 1.19**i) for i in range(20)]
    stages = plan(*nodes, spec=spec).stages
    assert (stages[0].spec.first_layer, stages[-1].spec.last_layer) == (0, 125)
    assert 5 < len(stages) <= 20
