"""Nodes and workers that refuse, fail, fall silent or die while the pipeline is brought up.

Each time the error names the node and says why, nothing stays held, and the coordinator can begin anew.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from coordinator.hold_deadlines import HoldDeadlines
from layerline.errors import (
    DeadlineError,
    ModelCorruptError,
    NoCoordinatorError,
    NodeDrainingError,
    NodeHeldError,
    NodeLostError,
    NodeUnreachableError,
    StageFailedError,
)
from layerline.facts import Holder
from layerline.models.card import ModelCard
from layerline.reports import NodeProgress, Planned
from tests.fakes.cases import cases
from tests.fakes.coordinators import BOUNDS, answer, coordinator_of, events_of, prepared, split
from tests.fakes.losses import Loss, dies, for_ever, loses_worker, works_without
from tests.fakes.node_service import nodes_of

SLOW = pytest.mark.slow

pytestmark = pytest.mark.usefixtures("nothing_left_over")


@pytest.mark.parametrize("place", [pytest.param(0, marks=SLOW), 1, pytest.param(2, marks=SLOW)])
async def test_a_node_that_dies_before_it_is_held(card: ModelCard, place: int) -> None:
    async with nodes_of(card, "a", "b", "c") as nodes, coordinator_of(nodes) as coordinator:
        lost = nodes[place]
        lost.hooks["card"] = lambda: dies(lost)
        with pytest.raises(NodeLostError) as raised:
            await prepared(coordinator, split("a", "b", "c"))
        assert raised.value.node == lost.name
        await works_without(lost, coordinator, *(node.name for node in nodes if node is not lost))


async def test_a_node_that_another_coordinator_took_first(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b", "c") as nodes, coordinator_of(nodes) as coordinator:
        b = nodes[1]

        async def taken() -> None:
            b.admission.holder = Holder(coordinator="other", address="10.0.0.9:1", instance="0" * 16)

        b.hooks["card"] = taken
        with pytest.raises(NodeHeldError, match=r"held by the coordinator other at 10\.0\.0\.9:1") as raised:
            await prepared(coordinator, split("a", "b", "c"))
        assert raised.value.node == "b"
        await works_without(b, coordinator, "a", "c")
        b.admission.holder = None


async def test_a_node_that_began_to_drain(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b", "c") as nodes, coordinator_of(nodes) as coordinator:
        b = nodes[1]
        b.hooks["card"] = lambda: b.admission.drain(0)
        with pytest.raises(NodeDrainingError) as raised:
            await prepared(coordinator, split("a", "b", "c"))
        assert raised.value.node == "b"
        await works_without(b, coordinator, "a", "c")


@pytest.mark.parametrize("place", [0, pytest.param(1, marks=SLOW), pytest.param(2, marks=pytest.mark.more)])
@pytest.mark.parametrize("point", ["load", "bind"])
async def test_a_node_that_dies_in_the_middle(card: ModelCard, point: str, place: int) -> None:
    async with nodes_of(card, "a", "b", "c") as nodes, coordinator_of(nodes) as coordinator:
        lost = nodes[place]
        lost.hooks[point] = lambda: dies(lost)
        with pytest.raises(NodeLostError) as raised:
            await prepared(coordinator, split("a", "b", "c"))
        assert raised.value.node == lost.name
        await works_without(lost, coordinator, *(node.name for node in nodes if node is not lost))


@pytest.mark.parametrize("point", ["load", "bind"])
async def test_what_a_node_says_against_a_command_is_what_the_user_hears(card: ModelCard, point: str) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:

        async def fails() -> None:
            raise ModelCorruptError("Tensor layers.4.up is not what it was.", remedy="Fetch it anew.")

        nodes[1].hooks[point] = fails
        with pytest.raises(ModelCorruptError) as raised:
            await prepared(coordinator, split("a", "b"))
        assert (raised.value.node, raised.value.remedy) == ("b", "Fetch it anew.")
        await works_without(nodes[1], coordinator, "a", "b")


@pytest.mark.parametrize("loss", [dies, loses_worker])
async def test_a_loaded_node_that_is_lost_while_others_load_ends_the_wait(card: ModelCard, loss: Loss) -> None:
    """b would load for ever."""
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        a, b = nodes
        a_is_loaded = asyncio.Event()

        async def loaded() -> None:
            a_is_loaded.set()

        async def a_is_lost() -> None:
            await a_is_loaded.wait()
            await loss(a)

        a.hooks["loaded"] = loaded
        b.hooks["load"] = a_is_lost
        with pytest.raises((NodeLostError, StageFailedError)) as raised:
            await prepared(coordinator, split("a", "b"))
        assert raised.value.node == "a"
        await works_without(b, coordinator, "b" if loss is dies else "a")


async def test_a_worker_that_dies_as_its_neighbour_reaches_for_it_says_so_itself(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        a, b = nodes

        async def next_dies() -> None:
            assert b.worker is not None
            assert b.worker._server is not None
            await b.worker._server.stop(None)
            asyncio.get_running_loop().call_later(0.05, lambda: dying.append(asyncio.create_task(loses_worker(b))))

        dying: list[asyncio.Task[None]] = []
        a.hooks["bind"] = next_dies
        with pytest.raises(StageFailedError, match="SIGKILL") as raised:
            await prepared(coordinator, split("a", "b"))
        assert raised.value.node == "b"
        for task in dying:
            task.cancel()
        await asyncio.wait(dying)
        await works_without(a, coordinator, "a", "b")


async def test_a_data_port_that_cannot_be_reached_is_named(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        a, b = nodes

        async def firewall() -> None:
            assert b.worker is not None
            assert b.worker._server is not None
            await b.worker._server.stop(None)

        a.hooks["bind"] = firewall
        with pytest.raises(NodeUnreachableError, match="data port of node b cannot be reached") as raised:
            await prepared(coordinator, split("a", "b"))
        assert "firewalls" in raised.value.remedy


@pytest.mark.parametrize("point", cases(["load", "bind"], more=["load"]))
async def test_a_node_that_does_not_get_on(card: ModelCard, point: str) -> None:
    bounds = replace(BOUNDS, hold=HoldDeadlines(load_silence_s=0.5, bind_s=0.5))
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes, bounds=bounds) as coordinator:
        nodes[1].hooks[point] = for_ever
        with pytest.raises(DeadlineError) as raised:
            await prepared(coordinator, split("a", "b"))
        assert raised.value.node == "b"
        await works_without(nodes[1], coordinator, "a")


async def test_a_node_that_says_nothing_to_the_greeting(card: ModelCard) -> None:
    bounds = replace(BOUNDS, hold=HoldDeadlines(welcome_s=0.2))
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes, bounds=bounds) as coordinator:
        nodes[1].silent = True
        with pytest.raises(NodeLostError, match="did not answer") as raised:
            await prepared(coordinator, split("a", "b"))
        assert raised.value.node == "b"
        await works_without(nodes[1], coordinator, "a")


async def test_a_client_that_leaves_at_any_event_leaves_nothing_behind(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        total = len(await events_of(coordinator, split("a", "b")))
        assert coordinator._service is not None
        await coordinator._service.leave()
        for count in range(total):
            async with aclosing(coordinator.prepare(split("a", "b"))) as events:
                for _ in range(count):
                    await anext(events, None)
        assert (await answer(coordinator, max_tokens=2)).text == "bc"


async def test_a_client_that_leaves_in_mid_load_ends_the_load(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        nodes[1].hooks["load"] = for_ever
        events = coordinator.prepare(split("a", "b"))
        while not isinstance(event := await anext(events), NodeProgress) or event.phase != "load":
            pass
        await events.aclose()
        await asyncio.gather(*(node.freed() for node in nodes))
        assert coordinator.facts().model == ""
        assert nodes[1].keeper.loaded == ()
        await works_without(nodes[1], coordinator, "a", "b")


async def test_a_preparation_that_failed_unheard_is_no_ones_fault(card: ModelCard) -> None:
    async with nodes_of(card, "a") as nodes, coordinator_of(nodes) as coordinator:

        async def fails() -> None:
            raise ModelCorruptError("It is broken.")

        nodes[0].hooks["load"] = fails
        events = coordinator.prepare(split("a"))
        while not isinstance(await anext(events), Planned):
            pass
        await nodes[0].loading.wait()
        await nodes[0].freed()
        await events.aclose()


async def test_a_coordinator_that_ends_in_mid_load_gives_everything_back(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes:
        async with coordinator_of(nodes) as coordinator:
            nodes[1].hooks["load"] = for_ever
            waiting = asyncio.create_task(prepared(coordinator, split("a", "b")))
            asking = asyncio.create_task(answer(coordinator, model="tiny"))
            await nodes[1].loading.wait()
        for task in (waiting, asking):
            with pytest.raises(NoCoordinatorError, match="ending"):
                await task
