"""A model that nodes have in memory is found as soon as they have answered; whom else a plan waits for is told."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from coordinator.catalogue import FoundModel, OnProgress, OpenModel
from coordinator.discovery.finder import Finder
from coordinator.discovery.members import Member
from coordinator.discovery.search import QUIET_S, STARTING_S
from coordinator.made_plan import untold
from coordinator.plan_maker import AGAIN_DEADLINE_S, Availability, PlanMaker
from coordinator.planning.planner import make_plan
from layerline.errors import NodeLostError, NodeUnreachableError
from layerline.facts import Holder, LoadedStage, NodeFacts
from layerline.models.card import ModelCard
from layerline.plan import Plan
from layerline.plan_request import ManualStage, PlanRequest
from layerline.reports import Announcement, PrepareEvent
from tests.fakes.cards import model_card
from tests.fakes.lookout import FakeLookout, advert
from tests.fakes.virtual_time import run_in_virtual_time
from tests.fakes.worlds import MIB, device, layers_by_node, model_spec, node, problem

SPEC = model_spec()
CARD = model_card(SPEC, digest="digest")
REQUEST = PlanRequest(model="m")
IDLE = (node("a", mib=400), node("b", mib=400))
SILENT = "silent"


async def unasked(*_question: object) -> ModelCard:
    """Stands for `NodeClient.open_model`, which nothing here comes to."""
    raise AssertionError("a node was asked for its card")


def warm(*nodes: NodeFacts) -> tuple[NodeFacts, ...]:
    """These nodes with the model in memory."""
    stages = make_plan(problem(SPEC, REQUEST, nodes)).stages
    loaded = {stage.node_id: LoadedStage(spec=stage.spec, weights_bytes=1, kv_bytes=1) for stage in stages}
    return tuple(replace(each, loaded=(loaded[each.node_id],)) for each in nodes)


class World:
    """Nodes by name that answer with their facts, and some that do not answer.

    Every node has the model; the one called `lost` is lost while it is asked for it.
    """

    def __init__(self, *nodes: NodeFacts, silent: Sequence[str] = (), lost: str = "") -> None:
        self.lost = lost
        self.facts: dict[str, NodeFacts | str] = {each.name: each for each in nodes} | dict.fromkeys(silent, SILENT)
        self.lookout = FakeLookout(*(advert(name) for name in self.facts))
        finder = Finder(self.lookout, (), self.describe, instance="0123456789abcdef")
        self.maker = PlanMaker(finder, unasked, self.find)

    async def find(
        self,
        reference: str,
        members: Sequence[Member],
        open_model: OpenModel,
        on_progress: OnProgress,
        *,
        needed: Collection[str] = (),
    ) -> FoundModel:
        having = [member for member in members if member.name != self.lost]
        if not having or (self.lost in needed and len(having) < len(members)):
            raise NodeLostError(f"{self.lost} was lost.", node=self.lost)
        return FoundModel(card=CARD, nodes=tuple(member.facts for member in having if member.facts), notes=())

    async def describe(self, address: str) -> NodeFacts:
        facts = self.facts.get(address.partition(".")[0])
        if isinstance(facts, NodeFacts):
            return facts
        if facts == SILENT:
            await asyncio.sleep(1e9)
        raise NodeUnreachableError(f"{address}: connection refused")

    def passed_s(self) -> float:
        return asyncio.get_running_loop().time() - self.lookout.opened_s


def test_a_model_in_memory_is_planned_with_as_soon_as_its_nodes_have_answered() -> None:
    async def search() -> None:
        world = World(*warm(*IDLE), silent=["c"])
        made = await world.maker.plan(REQUEST, untold)
        assert {name for name, _, _ in layers_by_node(made.plan)} == {"a", "b"}
        assert world.passed_s() == 0
        assert not any("cannot be used" in note for note in made.plan.notes)

    run_in_virtual_time(search())


def test_the_second_half_of_a_model_in_memory_is_waited_for() -> None:
    async def search() -> None:
        one, other = warm(*IDLE)
        world = World(one)
        world.facts["b"] = other
        asyncio.get_running_loop().call_later(0.5, world.lookout.appear, advert("b"))
        made = await world.maker.plan(REQUEST, untold)
        assert {name for name, _, _ in layers_by_node(made.plan)} == {"a", "b"}
        assert world.passed_s() == pytest.approx(0.5)

    run_in_virtual_time(search())


def test_what_is_not_in_memory_as_it_is_asked_for_is_planned_with_all_nodes() -> None:
    async def search() -> None:
        world = World(*warm(*IDLE), node("c", mib=8192))
        made = await world.maker.plan(PlanRequest(model="m", dtype="float32"), untold)
        assert {name for name, _, _ in layers_by_node(made.plan)} == {"c"}
        assert world.passed_s() == pytest.approx(QUIET_S)

    run_in_virtual_time(search())


def test_a_request_that_names_another_node_is_planned_with_that() -> None:
    async def search() -> None:
        (whole,) = warm(node("a", mib=8192))
        stages = (
            ManualStage(node="a", first_layer=0, last_layer=14),
            ManualStage(node="b", first_layer=15, last_layer=29),
        )
        made = await World(whole, node("b", mib=8192)).maker.plan(PlanRequest(model="m", layers=stages), untold)
        assert layers_by_node(made.plan) == [("a", 0, 14), ("b", 15, 29)]

    run_in_virtual_time(search())


def test_a_node_with_the_model_in_memory_that_is_lost_is_done_without() -> None:
    async def search() -> None:
        (whole,) = warm(node("a", mib=8192))
        made = await World(whole, node("b", mib=8192), lost="a").maker.plan(REQUEST, untold)
        assert {name for name, _, _ in layers_by_node(made.plan)} == {"b"}

    run_in_virtual_time(search())


@pytest.mark.parametrize("lost_is_warm", [True, False])
def test_a_node_that_is_named_and_lost_says_so_whether_it_has_the_model_in_memory_or_not(lost_is_warm: bool) -> None:
    async def search() -> None:
        a, b = warm(*IDLE)
        request = PlanRequest(
            model="m",
            layers=(
                ManualStage(node="a", first_layer=0, last_layer=14),
                ManualStage(node="b", first_layer=15, last_layer=29),
            ),
        )
        with pytest.raises(NodeLostError):
            await World(a, b if lost_is_warm else IDLE[1], lost="b").maker.plan(request, untold)

    run_in_virtual_time(search())


def test_of_a_request_that_names_nodes_no_other_with_the_model_in_memory_is_asked() -> None:
    async def search() -> None:
        (lost,) = warm(node("c", mib=8192))
        stages = (ManualStage(node="a", first_layer=0, last_layer=29),)
        request = PlanRequest(model="m", layers=stages)
        made = await World(node("a", mib=8192), lost, lost="c").maker.plan(request, untold)
        assert layers_by_node(made.plan) == [("a", 0, 29)]

    run_in_virtual_time(search())


def test_nodes_that_have_the_model_in_memory_say_at_once_that_nobody_holds_them() -> None:
    async def search() -> None:
        world = World(*warm(*IDLE), silent=["c"])
        assert (await world.maker.availability("m")).free
        assert world.passed_s() == 0

    run_in_virtual_time(search())


def test_without_the_model_in_memory_nodes_are_free_once_no_new_one_has_come() -> None:
    async def search() -> None:
        world = World(*IDLE)
        assert (await world.maker.availability("m")).free
        assert world.passed_s() == pytest.approx(QUIET_S)

    run_in_virtual_time(search())


def test_where_a_node_is_held_or_none_answers_a_coordinator_may_be_there() -> None:
    async def search() -> None:
        held = replace(IDLE[0], held_by=Holder(coordinator="attic", address="10.0.0.9:1", instance="f" * 16))
        assert await World(held, IDLE[1]).maker.availability("m") == Availability(free=False)
        assert await World().maker.availability("m") == Availability(free=False)

    run_in_virtual_time(search())


@pytest.mark.parametrize("model", ["m", ""])
def test_a_node_says_at_once_where_the_coordinator_takes_requests_that_holds_it(model: str) -> None:
    async def search() -> None:
        attic = Holder(coordinator="attic", address="10.0.0.9:7355", instance="f" * 16, takes_requests=True)
        world = World(IDLE[1], replace(IDLE[0], held_by=attic), silent=["c"])
        found = await world.maker.availability(model)
        assert found == Availability(free=False, coordinators=("10.0.0.9:7355",))
        assert world.passed_s() == 0

    run_in_virtual_time(search())


def test_whom_a_plan_waits_for_is_told_at_once_and_planned_with() -> None:
    async def search() -> None:
        told: list[tuple[float, PrepareEvent]] = []
        world = World(IDLE[0], node("b", mib=8192, state="starting"))
        ready = node("b", mib=8192)
        asyncio.get_running_loop().call_later(40.0, world.facts.update, {"b": ready})
        made = await world.maker.plan(REQUEST, lambda event: told.append((world.passed_s(), event)))
        assert told[1] == (0.0, Announcement(text="Waiting for b, which still measures its devices."))
        assert {name for name, _, _ in layers_by_node(made.plan)} == {"b"}
        assert world.passed_s() == pytest.approx(40.0, abs=1.0)

    run_in_virtual_time(search())


def test_a_node_that_never_comes_to_an_end_with_measuring_is_planned_without_and_named() -> None:
    async def search() -> None:
        world = World(node("a", mib=8192), node("b", state="starting"))
        made = await world.maker.plan(REQUEST, untold)
        assert any(note.startswith("b cannot be used: it is starting") for note in made.plan.notes)
        assert world.passed_s() == pytest.approx(STARTING_S)

    run_in_virtual_time(search())


@pytest.mark.parametrize(("keep", "passed_s"), [(True, 0.0), (False, AGAIN_DEADLINE_S)])
def test_after_a_loss_the_nodes_that_are_known_are_asked_and_nothing_else_is_waited_for(
    keep: bool, passed_s: float
) -> None:
    async def search() -> None:
        world = World(node("a", mib=270), node("b", mib=270), node("c", mib=8192))
        made = await world.maker.plan(PlanRequest(model="m", context_tokens=512), untold)
        (used,) = {name for name, _, _ in layers_by_node(made.plan)}
        world.facts["a" if used != "a" else "b"] = SILENT
        await asyncio.sleep(60)
        began_s = world.passed_s()
        again = await world.maker.plan_again(REQUEST, made, untold, keep=keep)
        assert {name for name, _, _ in layers_by_node(again.plan)} == {used}
        assert world.passed_s() - began_s == pytest.approx(passed_s)

    run_in_virtual_time(search())


def test_answers_of_a_plan_whose_devices_compute_each_in_its_own_way_go_on_so() -> None:
    """By the kernels and by torch, in the dtype and with the weights of before, on the nodes that are left."""

    async def search() -> None:
        names, gpu = ("a", "b", "c"), device("cuda:0", budget_bytes=250 * MIB)
        cpus = [node(name, device(kernels="avx2", budget_bytes=260 * MIB, gb_per_s=1.0)) for name in names]
        world = World(*cpus, node("d", gpu))
        made = await world.maker.plan(PlanRequest(model="m", context_tokens=512), untold)
        assert _ways(made.plan) == {("bfloat16", "stored", "standard"), ("bfloat16", "bfloat16", "")}
        lost = next(stage.node for stage in made.plan.stages if stage.spec.precision)
        world.facts[lost] = SILENT
        again = await world.maker.plan_again(REQUEST, made, untold, keep=False)
        assert _ways(again.plan) == _ways(made.plan)
        assert again.plan.context_tokens == 512, "it is as before, not made anew"
        assert lost not in {stage.node for stage in again.plan.stages}

    run_in_virtual_time(search())


def _ways(plan: Plan) -> set[tuple[str, str, str]]:
    return {(stage.spec.dtype, stage.spec.weights, stage.spec.precision) for stage in plan.stages}
