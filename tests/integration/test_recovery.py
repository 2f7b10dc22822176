"""Pipelines that are lost under answers, which go on in the next one as if nothing had been.

The nodes are fakes that count on from the last token, behind real services on loopback.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from coordinator.verdict import Patience
from layerline.models.card import ModelCard
from layerline.plan_request import PlanRequest
from layerline.step_result import StepResult
from tests.fakes.cases import cases
from tests.fakes.coordinators import BOUNDS, answer, coordinator_of, prepared, split
from tests.fakes.losses import comes_to, epoch_of, for_ever, seat_of, swallow
from tests.fakes.node_service import FakeNode, nodes_of
from tests.fakes.recoveries import SOME, TOKENS, at_step, kill_worker, same_answer

SLOW = pytest.mark.slow

pytestmark = pytest.mark.usefixtures("nothing_left_over")


@pytest.mark.parametrize("step", [pytest.param(1, marks=SLOW), 2, pytest.param(5, marks=SLOW)])
@pytest.mark.parametrize("place", cases([0, 1, 2], more=[1]))
async def test_answers_outlive_the_worker_of_any_stage(card: ModelCard, place: int, step: int) -> None:
    async with nodes_of(card, "a", "b", "c") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b", "c"))
        undisturbed = await answer(coordinator, **SOME)
        first = epoch_of(coordinator)
        lost = at_step(step + TOKENS, nodes[place])
        several = await asyncio.gather(*(answer(coordinator, **SOME) for _ in range(4)))
        assert lost.is_set()
        assert all(same_answer(one, undisturbed) for one in several)
        assert {one.finished.losses for one in several} <= {0, 1}
        assert any(one.finished.losses for one in several)
        assert epoch_of(coordinator) == first + 1
        assert [node.loads for node in nodes] == [1 + (node is nodes[place]) for node in nodes]


async def test_answers_go_on_elsewhere_when_their_node_is_gone(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, PlanRequest(model="tiny"))
        undisturbed = await answer(coordinator, **SOME)
        (stage,) = undisturbed.finished.plan
        there, other = nodes if stage.node == "a" else reversed(nodes)
        lost = at_step(TOKENS + 6, there, FakeNode.die)
        one = await answer(coordinator, **SOME)
        assert lost.is_set()
        assert same_answer(one, undisturbed)
        assert [stage.node for stage in one.finished.plan] == [other.name]


async def test_answers_leave_a_node_that_shuts_down(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, PlanRequest(model="tiny"))
        undisturbed = await answer(coordinator, **SOME)
        (stage,) = undisturbed.finished.plan
        there, other = nodes if stage.node == "a" else reversed(nodes)
        at_step(TOKENS + 6, there, lambda node: node.admission.drain(5))
        one = await answer(coordinator, **SOME)
        assert same_answer(one, undisturbed)
        assert [stage.node for stage in one.finished.plan] == [other.name]


async def test_a_stage_that_fails_once_is_asked_again(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        failed = []

        def fail(step: int) -> None:
            if step == 5:
                failed.append(step)
                raise RuntimeError("out of memory")

        nodes[1].on_step = fail
        one = await answer(coordinator, max_tokens=8)
        assert (one.text, failed) == ("bcdefghi", [5])
        assert [node.loads for node in nodes] == [1, 1]  # what is loaded is adopted


async def test_a_step_that_never_comes_back_is_done_again(card: ModelCard) -> None:
    bounds = replace(BOUNDS, step_deadline_s=0.2, patience=Patience(naming_s=0.1))
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes, bounds=bounds) as coordinator:
        await prepared(coordinator, split("a", "b"))
        seat_of(nodes[1]).stage.accept = swallow  # type: ignore[method-assign]  # instead of its own
        assert (await answer(coordinator, max_tokens=4)).text == "bcde"


async def test_a_worker_that_returns_another_step_is_left(card: ModelCard, caplog: pytest.LogCaptureFixture) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        results = seat_of(nodes[1]).results
        send = results.send

        async def twice(item: StepResult) -> None:
            await send(item)
            await send(item)

        results.send = twice  # type: ignore[method-assign]  # instead of its own
        assert (await answer(coordinator, max_tokens=8)).text == "bcdefghi"
        assert "the step due is" in caplog.text


@pytest.mark.parametrize("place", cases([0, 1], more=[0]))
async def test_losses_one_after_the_other(card: ModelCard, place: int) -> None:
    """More than the attempts there are for one loss, as the answer goes on between them."""
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        undisturbed = await answer(coordinator, **SOME)
        node = nodes[place]

        def lose(step: int) -> None:
            if step > TOKENS and step % 4 == 0:
                node.losing = asyncio.create_task(kill_worker(node))  # type: ignore[attr-defined]  # kept

        node.on_step = lose
        one = await answer(coordinator, **SOME)
        assert same_answer(one, undisturbed)
        assert one.finished.losses >= 4


@pytest.mark.parametrize("point", ["card", "bind", *(pytest.param(point, marks=SLOW) for point in ("load", "loaded"))])
async def test_a_loss_on_the_way_back(card: ModelCard, point: str) -> None:
    """The worker of a is lost, and on the way back b, or its worker, goes too; c can take over."""
    async with nodes_of(card, "a", "b", "c", mib=33.7) as nodes, coordinator_of(nodes) as coordinator:
        plan = await prepared(coordinator, PlanRequest(model="tiny"))
        undisturbed = await answer(coordinator, **SOME)
        used = [node for node in nodes if node.name in {stage.node for stage in plan.stages}]
        assert len(used) == 2

        async def dies_once() -> None:
            used[-1].hooks.clear()
            used[-1].die_soon()
            await for_ever()

        lost = at_step(TOKENS + 6, used[0])
        used[-1].hooks[point] = dies_once
        one = await answer(coordinator, **SOME)
        assert lost.is_set()
        assert same_answer(one, undisturbed)


async def test_a_model_comes_back_with_nobody_asking(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        for _ in range(3):
            epoch = epoch_of(coordinator)
            assert (await answer(coordinator, max_tokens=1)).text == "b"  # it has worked
            await kill_worker(nodes[1])
            await comes_to(coordinator, "serving", after_epoch=epoch)
        assert (await answer(coordinator, max_tokens=2)).text == "bc"
