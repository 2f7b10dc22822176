"""Nodes and workers that refuse, fail, fall silent or die for good while the pipeline is in service.

Each time the error names the node and says why, nothing stays held, and the coordinator can begin anew. What comes back
by itself is in `test_recovery`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from coordinator.engine import Engine
from coordinator.hold_deadlines import HoldDeadlines
from layerline.answer import Piece
from layerline.errors import (
    NoCoordinatorError,
    NodeDrainingError,
    NodeLostError,
    StageFailedError,
)
from layerline.hold import Heartbeats
from layerline.models.card import ModelCard
from layerline.plan_request import PlanRequest
from layerline.requests import GenerateRequest
from tests.fakes.coordinators import BOUNDS, answer, coordinator_of, prepared, split
from tests.fakes.losses import LONG, dies, seat_of, swallow, works_without
from tests.fakes.node_service import nodes_of

SLOW = pytest.mark.slow
EACH_PLACE = pytest.mark.parametrize("place", [pytest.param(0, marks=SLOW), 1, pytest.param(2, marks=SLOW)])

pytestmark = pytest.mark.usefixtures("nothing_left_over")


@EACH_PLACE
async def test_a_node_that_is_lost_while_nothing_is_asked(card: ModelCard, place: int) -> None:
    async with nodes_of(card, "a", "b", "c") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b", "c"))
        lost = nodes[place]
        losing = asyncio.create_task(dies(lost))
        await coordinator.lost()
        assert coordinator.facts().model == ""
        losing.cancel()
        await asyncio.wait([losing])
        await works_without(lost, coordinator, *(node.name for node in nodes if node is not lost))


@EACH_PLACE
async def test_a_node_that_is_lost_in_mid_answer_and_that_no_plan_can_do_without(card: ModelCard, place: int) -> None:
    async with nodes_of(card, "a", "b", "c") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b", "c"))
        lost, losing = nodes[place], []

        def lose(step: int) -> None:
            if step == 5:
                losing.append(asyncio.create_task(dies(lost)))

        lost.on_step = lose
        several = await asyncio.gather(*(answer(coordinator, **LONG) for _ in range(4)), return_exceptions=True)
        for failure in several:
            assert isinstance(failure, NodeLostError)
            assert failure.node == lost.name
            assert "could not be brought up again: --layers gives" in failure.message
            assert f"to '{lost.name}', but no node that can be used is called so" in failure.message
        await coordinator.lost()
        losing[0].cancel()
        await asyncio.wait(losing)
        await works_without(lost, coordinator, *(node.name for node in nodes if node is not lost))


@EACH_PLACE
async def test_a_stage_that_fails_at_every_prompt_ends_the_answer_after_some_tries(card: ModelCard, place: int) -> None:
    async with nodes_of(card, "a", "b", "c") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b", "c"))

        def fail(step: int) -> None:
            raise RuntimeError("out of memory")

        nodes[place].on_step = fail
        with pytest.raises(StageFailedError, match="out of memory") as raised:
            await answer(coordinator, **LONG)
        assert raised.value.node == nodes[place].name
        assert "--memory" in raised.value.remedy
        nodes[place].on_step = None
        loads = [node.loads for node in nodes]
        assert (await answer(coordinator, max_tokens=2)).text == "bc"  # at once, without being prepared
        assert [node.loads for node in nodes] == loads  # what is loaded is adopted


async def test_a_draining_node_that_no_plan_can_do_without(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        drains: list[asyncio.Task[None]] = []
        seat_of(nodes[1]).stage.accept = swallow  # type: ignore[method-assign]  # instead of its own
        nodes[0].on_step = lambda _step: drains.append(asyncio.create_task(nodes[1].admission.drain(5)))
        with pytest.raises(NodeDrainingError) as raised:
            await answer(coordinator, **LONG)
        assert raised.value.node == "b"
        await asyncio.gather(*drains)
        await works_without(nodes[1], coordinator, "a")


@pytest.mark.more
async def test_a_node_that_falls_silent(card: ModelCard) -> None:
    heartbeats = Heartbeats(interval_s=0.02, silence_s=2.0)
    bounds = replace(BOUNDS, hold=HoldDeadlines(welcome_s=0.2, heartbeats=heartbeats))
    async with (
        nodes_of(card, "a", "b", heartbeats=heartbeats) as nodes,
        coordinator_of(nodes, bounds=bounds) as coordinator,
    ):
        await prepared(coordinator, split("a", "b"))
        nodes[1].silent = True
        heard = asyncio.create_task(answer(coordinator, **LONG))
        await coordinator.lost()
        await asyncio.wait([heard])
        await works_without(nodes[1], coordinator, "a")


async def test_a_client_that_leaves_in_mid_answer_frees_its_pages(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        assert coordinator._service is not None
        engine = coordinator._service._engine
        assert isinstance(engine, Engine)
        for count in range(5):
            items = coordinator.generate(GenerateRequest(prompt="a", **LONG))
            for _ in range(count):
                assert isinstance(await anext(items), Piece)
            await items.aclose()
        assert (await answer(coordinator, max_tokens=3)).text == "bcd"
        assert engine._scheduler.idle
        assert engine._answers == {}


async def test_a_client_that_is_cancelled_in_mid_answer_frees_its_pages(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        asking = [asyncio.create_task(answer(coordinator, **LONG)) for _ in range(5)]
        for task in asking:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait(asking)
        assert all(task.cancelled() for task in asking)
        assert (await answer(coordinator, max_tokens=3)).text == "bcd"


async def test_a_coordinator_that_ends_in_mid_answer_says_so(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes:
        async with coordinator_of(nodes) as coordinator:
            await prepared(coordinator, split("a", "b"))
            steps = asyncio.Event()
            nodes[1].on_step = lambda step: steps.set() if step == 3 else None
            asking = asyncio.create_task(answer(coordinator, **LONG))
            await steps.wait()
        with pytest.raises(NoCoordinatorError, match="ending"):
            await asking


async def test_the_stages_of_a_coordinator_that_vanished_are_adopted_by_the_next(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes:
        async with coordinator_of(nodes, "first") as first:
            plan = await prepared(first, split("a", "b"))
        async with coordinator_of(nodes, "second") as second:
            again = await prepared(second, PlanRequest(model="tiny"))
            assert again.pipelines[0].epoch == plan.pipelines[0].epoch + 1
            assert [stage.node for stage in again.stages] == ["a", "b"]
            assert [node.loads for node in nodes] == [1, 1]
            assert (await answer(second, max_tokens=2)).text == "bc"
