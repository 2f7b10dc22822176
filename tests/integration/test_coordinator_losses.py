"""Nodes and workers that refuse, fail, fall silent or die while the pipeline is in service.

Each time the error names the node and says why, nothing stays held, and the coordinator can begin anew.
"""

from __future__ import annotations

import asyncio

import pytest

from coordinator import node_session, telling
from coordinator.engine import Engine
from layerline.errors import (
    DeadlineError,
    LayerlineError,
    NoCoordinatorError,
    NodeDrainingError,
    NodeError,
    NodeLostError,
    ProtocolError,
    StageFailedError,
)
from layerline.models.card import ModelCard
from layerline.plan import PlanRequest
from layerline.requests import GenerateRequest, Piece
from node.daemon.hold import hold as holding
from tests.fakes.coordinators import answer, coordinator_of, prepared, split
from tests.fakes.losses import LONG, Loss, dies, loses_worker, seat_of, swallow, works_without
from tests.fakes.node_service import nodes_of

pytestmark = pytest.mark.usefixtures("nothing_left_over")


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("loss", [dies, loses_worker])
async def test_a_loss_while_nothing_is_asked(card: ModelCard, loss: Loss, place: int) -> None:
    async with nodes_of(card, "a", "b", "c") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b", "c"))
        lost = nodes[place]
        losing = asyncio.create_task(loss(lost))
        await coordinator.lost()
        assert coordinator.facts().model == ""
        losing.cancel()
        await asyncio.wait([losing])
        await works_without(lost, coordinator, *(node.name for node in nodes if node is not lost))


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(("loss", "kind"), [(dies, NodeLostError), (loses_worker, StageFailedError)])
async def test_a_loss_in_mid_answer(card: ModelCard, loss: Loss, kind: type[NodeError], place: int) -> None:
    async with nodes_of(card, "a", "b", "c") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b", "c"))
        lost, losing = nodes[place], []

        def lose(step: int) -> None:
            if step == 5:
                losing.append(asyncio.create_task(loss(lost)))

        lost.on_step = lose
        several = await asyncio.gather(*(answer(coordinator, **LONG) for _ in range(4)), return_exceptions=True)
        for failure in several:
            assert isinstance(failure, kind)
            assert failure.node == lost.name
        await coordinator.lost()
        losing[0].cancel()
        await asyncio.wait(losing)
        await works_without(lost, coordinator, *(node.name for node in nodes if node is not lost))


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_stage_that_fails_at_a_step(card: ModelCard, place: int) -> None:
    async with nodes_of(card, "a", "b", "c") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b", "c"))

        def fail(step: int) -> None:
            if step == 5:
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


async def test_a_draining_node_in_mid_answer(card: ModelCard) -> None:
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


async def test_a_node_that_falls_silent(card: ModelCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_session, "SILENCE_DEADLINE_S", 0.5)
    monkeypatch.setattr(holding, "HEARTBEAT_INTERVAL_S", 0.02)
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        nodes[1].silent = True
        heard = asyncio.create_task(answer(coordinator, **LONG))
        await coordinator.lost()
        await asyncio.wait([heard])
        await works_without(nodes[1], coordinator, "a")


async def test_a_step_that_never_comes_back(card: ModelCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.engine.STEP_DEADLINE_S", 0.1)
    monkeypatch.setattr(telling, "NAMING_S", 0.1)
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        seat_of(nodes[1]).stage.accept = swallow  # type: ignore[method-assign]  # instead of its own
        with pytest.raises(DeadlineError, match="did not come back") as raised:
            await answer(coordinator)
        assert "a, b" in raised.value.message
        await coordinator.lost()
        monkeypatch.undo()
        await works_without(nodes[1], coordinator, "a", "b")


async def test_a_worker_that_returns_another_step_is_named(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        results = seat_of(nodes[1]).results
        send = results.send

        async def twice(item: object) -> None:
            await send(item)  # type: ignore[arg-type]  # options by name
            await send(item)  # type: ignore[arg-type]  # options by name

        results.send = twice  # type: ignore[method-assign, assignment]  # instead of its own
        with pytest.raises(ProtocolError, match="the step due is") as raised:
            await answer(coordinator, **LONG)
        assert raised.value.node == "b"


async def test_a_client_that_leaves_in_mid_answer_frees_its_pages(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        engine = coordinator._serving._engine  # type: ignore[union-attr]  # it serves
        assert isinstance(engine, Engine)
        for count in range(5):
            items = coordinator.generate(GenerateRequest(prompt="a", **LONG))  # type: ignore[arg-type]  # options by name
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


async def test_a_request_in_the_moment_of_a_failure_builds_anew(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        model = coordinator._serving
        assert model is not None
        model.hear(StageFailedError("It broke.", node="a"))
        await model.failed.wait()  # nobody has had time to give it back
        assert (await answer(coordinator, max_tokens=2)).text == "bc"
        assert coordinator._serving is not model


async def test_of_several_errors_the_most_telling_is_told(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        model = coordinator._serving
        assert model is not None
        said: list[LayerlineError] = [
            NodeLostError("A neighbour on the ring ended its stream."),
            ProtocolError("What is this?"),
            NodeLostError("The connection to b is gone.", node="b"),
            StageFailedError("The worker of b was killed.", node="b"),
            NodeLostError("The connection to a is gone.", node="a"),
        ]
        seat_of(nodes[1]).stage.accept = swallow  # type: ignore[method-assign]  # instead of its own
        asking = asyncio.create_task(answer(coordinator, **LONG))
        for error in said:
            model.hear(error)
        with pytest.raises(StageFailedError, match="killed"):
            await asking
        await coordinator.lost()
