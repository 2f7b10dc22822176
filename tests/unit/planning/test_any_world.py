"""For any world a plan that keeps its promises."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.planning.planner import make_plan
from layerline.errors import PlanDoesNotFitError
from layerline.facts import NodeFacts
from layerline.models.spec import ModelSpec
from layerline.plan import Plan
from layerline.plan_request import PlanRequest
from tests.fakes.worlds import layers_by_node, model_spec, node, problem


def plan(*nodes: NodeFacts, spec: ModelSpec) -> Plan:
    return make_plan(problem(spec, PlanRequest(model="m"), nodes))


NODE = st.tuples(st.integers(20, 400), st.sampled_from([0.0, 1.0, 5.0, 19.0, 20.0, 21.0, 40.0, 100.0]))
WORLD = st.lists(NODE, min_size=1, max_size=6)


def nodes_of(world: list[tuple[int, float]]) -> list[NodeFacts]:
    return [node(f"n{i}", mib=mib, gb_per_s=speed) for i, (mib, speed) in enumerate(world)]


@given(world=WORLD, layers=st.integers(1, 40), vocabulary=st.sampled_from([16, 49152]), tied=st.booleans())
def test_every_plan_covers_the_model_within_memory_whatever_the_order_of_nodes(
    world: list[tuple[int, float]], layers: int, vocabulary: int, tied: bool
) -> None:
    spec = model_spec(layers=layers, vocabulary=vocabulary, tied_output=tied)
    nodes = nodes_of(world)
    try:
        made = plan(*nodes, spec=spec)
    except PlanDoesNotFitError:
        with pytest.raises(PlanDoesNotFitError):
            plan(*reversed(nodes), spec=spec)
        return
    covered = [layer for _, first, last in layers_by_node(made) for layer in range(first, last + 1)]
    assert covered == list(range(layers))
    assert all(stage.needed_bytes <= stage.budget_bytes for stage in made.stages)
    assert len({stage.node_id for stage in made.stages}) == len(made.stages)
    assert len({(s.spec.pages, s.spec.max_rows, s.spec.page_tokens) for s in made.stages}) == 1
    assert all(plan(*order, spec=spec) == made for order in list(permutations(nodes))[:3])
    assert plan(*reversed(nodes), spec=spec) == made
