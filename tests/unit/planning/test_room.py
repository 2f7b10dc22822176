"""Every stage has the same KV pages: as many as are of use where memory allows, and layers are moved for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.planning.candidates import Candidates
from coordinator.planning.footprint import PAGE_TOKENS
from coordinator.planning.planner import make_plan
from coordinator.planning.room import MOST_SLOWER, SEQUENCES_OF_USE, Priced, preferred
from coordinator.planning.split import best_split
from layerline.errors import PlanDoesNotFitError
from layerline.facts import NodeFacts
from layerline.layers_option import parse_layers
from layerline.plan import Plan
from layerline.plan_request import PlanRequest
from tests.fakes.worlds import MIB, layers_by_node, model_spec, node, problem

SPEC = model_spec(vocabulary=16)  # 30 layers of 6.8 MiB, 0.375 MiB of KV pages a layer for each 512 tokens
ASKED = PlanRequest(model="m", context_tokens=512)


def plan(*nodes: NodeFacts, request: PlanRequest = ASKED) -> Plan:
    return make_plan(problem(SPEC, request, nodes))


def sequences(made: Plan) -> float:
    return made.stages[0].spec.pages * PAGE_TOKENS / made.context_tokens


def stage_mib(layers: int, sequences: float) -> int:
    """The least that a stage in the middle takes, with pages for so many sequences of 512 tokens."""
    longer = model_spec(layers=layers + 2, vocabulary=16)
    asked = problem(longer, ASKED, ())
    pages = asked.pages(round(512 * sequences))
    return -(-asked.footprint.needed_bytes(range(1, layers + 1), pages) // MIB)


def test_there_are_pages_for_as_many_sequences_as_are_of_use_and_no_more() -> None:
    made = plan(node("a"))
    assert sequences(made) == SEQUENCES_OF_USE
    assert "The KV pages hold 4096 tokens, 8 sequences of the whole context." in made.notes


def test_where_memory_is_short_there_are_as_many_pages_as_fit_and_the_node_is_named() -> None:
    made = plan(node("a", mib=stage_mib(30, 2.5)))
    pages_mib = 30 * 0.375
    assert sequences(made) == pytest.approx(2.5, abs=1 / pages_mib)
    (note,) = [note for note in made.notes if note.startswith("The KV pages hold")]
    assert "sequences of the whole context; a has no memory for more" in note


def test_of_equally_fast_nodes_the_much_roomier_holds_the_model() -> None:
    small, large = stage_mib(30, 2), stage_mib(30, 4)
    assert layers_by_node(plan(node("a", mib=small), node("b", mib=large))) == [("b", 0, 29)]
    assert layers_by_node(plan(node("a", mib=small), node("b", mib=small + 2))) == [("a", 0, 29)]


def test_a_faster_node_is_not_passed_over_for_its_room() -> None:
    nodes = (node("a", mib=stage_mib(30, 1), gb_per_s=30), node("b", mib=stage_mib(30, 8)))
    assert layers_by_node(plan(*nodes)) == [("a", 0, 29)]


def test_a_tight_node_takes_fewer_layers_for_more_pages() -> None:
    """Three equally fast nodes would share evenly, but one has hardly any memory for pages beside ten layers."""
    tight, wide = stage_mib(10, 1.2), stage_mib(11, 8)
    made = plan(node("a", mib=wide), node("b", mib=tight), node("c", mib=wide))
    counts = {name: last - first + 1 for name, first, last in layers_by_node(made)}
    assert counts == {"a": 11, "b": 8, "c": 11}
    assert sequences(made) > 4
    (moved,) = [note for note in made.notes if "Layers are moved" in note]
    assert f"this one {made.stages[0].spec.pages * PAGE_TOKENS} and is 1.9% slower" in moved


def test_layers_are_not_moved_for_little_room_or_at_a_high_price() -> None:
    tight, wide = stage_mib(10, 1.2), stage_mib(10, 1.4)
    made = plan(node("a", mib=wide), node("b", mib=tight), node("c", mib=wide))
    assert {last - first + 1 for _, first, last in layers_by_node(made)} == {10}
    made = plan(node("fast", mib=stage_mib(20, 1)), node("slow", mib=stage_mib(25, 4), gb_per_s=2))
    assert {last - first + 1 for name, first, last in layers_by_node(made) if name == "fast"} == {20}


def test_layers_given_by_hand_stay_and_have_the_pages_that_fit() -> None:
    tight = node("b", mib=stage_mib(10, 3))
    by_hand = PlanRequest(model="m", context_tokens=512, layers=parse_layers("a=0-9,b=10-19,c=20-29"))
    made = plan(node("a"), tight, node("c"), request=by_hand)
    assert layers_by_node(made) == [("a", 0, 9), ("b", 10, 19), ("c", 20, 29)]
    assert sequences(made) == pytest.approx(3, abs=1 / 3.75)
    assert any("b has no memory for more" in note for note in made.notes)


def test_nothing_is_preferred_of_nothing_and_the_first_of_equals() -> None:
    assert preferred(()) is None
    first, second = (Priced(choice=name, cost=1.0, pages=9) for name in "ab")
    assert preferred((first, second)) is first


NODE = st.tuples(st.integers(45, 200), st.sampled_from([5.0, 20.0, 24.0, 40.0]))


@given(world=st.lists(NODE, min_size=1, max_size=5), context_tokens=st.sampled_from([512, 2048]))
def test_whatever_the_world_pages_fit_everywhere_and_are_never_fewer_than_those_of_the_fastest(
    world: list[tuple[int, float]], context_tokens: int
) -> None:
    nodes = [node(f"n{i}", mib=mib, gb_per_s=speed) for i, (mib, speed) in enumerate(world)]
    request = PlanRequest(model="m", context_tokens=context_tokens)
    try:
        made = plan(*nodes, request=request)
    except PlanDoesNotFitError:
        return
    assert 1 <= sequences(made) <= SEQUENCES_OF_USE
    assert len({stage.spec.pages for stage in made.stages}) == 1
    assert all(stage.needed_bytes <= stage.budget_bytes for stage in made.stages)
    asked = problem(SPEC, request, nodes)
    split = best_split(Candidates.of(asked), asked.pages(context_tokens))
    if split is None or len(made.stages) == 1:
        return
    assert made.stages[0].spec.pages == split.chosen.pages >= split.fastest.pages
    assert split.chosen.cost <= MOST_SLOWER * split.fastest.cost
