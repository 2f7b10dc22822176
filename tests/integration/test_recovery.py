"""Pipelines that are lost under answers, which go on in the next one as if nothing had been.

The nodes are fakes that count on from the last token, behind real services on loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.coordinator import Coordinator
from coordinator.verdict import Patience
from layerline.errors import (
    NoCoordinatorError,
    NodeLostError,
    OverloadedError,
    RequestError,
    StageFailedError,
)
from layerline.frames import Frame, StepResult
from layerline.models.card import ModelCard
from layerline.plan import PlanRequest
from layerline.reports import Announcement, Ready
from layerline.requests import Completion, GenerateRequest
from tests.fakes.coordinators import BOUNDS, answer, coordinator_of, events_of, joined, prepared, split
from tests.fakes.losses import comes_to, epoch_of, for_ever, seat_of, swallow
from tests.fakes.model_files import TinyModel
from tests.fakes.node_service import MODEL, FakeNode, nodes_of, tiny_card

SLOW = pytest.mark.slow

pytestmark = pytest.mark.usefixtures("nothing_left_over")

POISON = 255
TOKENS = 20
SOME: dict[str, Any] = {"max_tokens": TOKENS}  # of which each takes a step
Lose = Callable[[FakeNode], Coroutine[Any, Any, None]]


async def kill_worker(node: FakeNode) -> None:
    assert node.worker is not None
    await node.worker.die()


def at_step(step: int, node: FakeNode, lose: Lose = kill_worker) -> asyncio.Event:
    """Has the node lost once, at that step of its own; set when it is."""
    losing = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []  # kept from the collector

    def count(number: int) -> None:
        if number == step and not losing.is_set():
            losing.set()
            tasks.append(asyncio.create_task(lose(node)))

    node.on_step = count
    return losing


def same_answer(one: Completion, other: Completion) -> bool:
    """Whether two answers are equal but for the time they took and what was lost on the way."""
    return (one.text, one.token_ids, one.finished.usage, one.finished.finish_reason) == (
        other.text,
        other.token_ids,
        other.finished.usage,
        other.finished.finish_reason,
    )


async def joined_of(coordinator: Coordinator, request: GenerateRequest) -> Completion:
    async with aclosing(coordinator.generate(request)) as items:
        return joined([item async for item in items])


# --- answers go on


@pytest.mark.parametrize("step", [pytest.param(1, marks=SLOW), 2, pytest.param(5, marks=SLOW)])
@pytest.mark.parametrize("place", [0, 1, 2])
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


@pytest.mark.parametrize("place", [0, 1])
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


# --- bounds


async def test_a_pipeline_that_breaks_each_time_before_it_works_is_given_up(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        for _ in range(4):  # the loss, and the three attempts that come of it
            assert coordinator.facts().model == MODEL
            epoch = epoch_of(coordinator)
            await kill_worker(nodes[1])
            await comes_to(coordinator, "serving", "absent", after_epoch=epoch)
        assert coordinator.facts().model == ""


async def test_an_answer_that_breaks_whatever_computes_it_ends_and_the_others_go_on(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        undisturbed = await answer(coordinator, **SOME)
        begun = asyncio.Event()

        def poison(frame: Frame) -> None:
            begun.set()
            if POISON in memoryview(frame.tensor.data).cast("i"):
                raise RuntimeError("this token cannot be computed")

        nodes[0].on_frame = poison
        innocent = asyncio.create_task(answer(coordinator, **SOME))
        await begun.wait()
        with pytest.raises(StageFailedError, match="this token"):
            await joined_of(coordinator, GenerateRequest(token_ids=(POISON,), max_tokens=4))
        assert same_answer(await innocent, undisturbed)


async def test_a_loss_that_no_plan_fits_after_ends_with_its_cause_and_what_is_missing(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b", mib=33.7) as nodes, coordinator_of(nodes) as coordinator:
        plan = await prepared(coordinator, PlanRequest(model="tiny"))
        assert len(plan.stages) == 2, "one node is too small"
        at_step(5, nodes[0], FakeNode.die)
        with pytest.raises(NodeLostError, match="could not be brought up again") as raised:
            await answer(coordinator, max_tokens=40)
        assert raised.value.node == "a"
        assert "MiB" in raised.value.message
        await coordinator.lost()
        assert coordinator.facts().model == ""


# --- meanwhile


async def test_what_is_told_and_taken_while_a_pipeline_is_lost(card: ModelCard) -> None:
    bounds = replace(BOUNDS, max_waiting=3)
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes, bounds=bounds) as coordinator:
        await prepared(coordinator, split("a", "b"))
        undisturbed = await answer(coordinator, **SOME)
        going_on = asyncio.Event()
        nodes[0].hooks["card"] = wait_for(going_on)
        at_step(TOKENS + 6, nodes[1])
        first = asyncio.create_task(answer(coordinator, **SOME))
        await comes_to(coordinator, "planning")
        assert coordinator.facts().model == MODEL
        assert not (await coordinator.models()).models[0].loaded
        stats = coordinator.stats()
        assert stats is not None
        assert stats.diagnosis == (
            "The pipeline is lost, and another one is being built. The worker of node b was killed (SIGKILL).",
        )
        assert (stats.sequences.waiting, stats.steps_in_flight, stats.oldest_step_s, stats.pages.used) == (1, 0, 0, 0)
        preparing = asyncio.create_task(events_of(coordinator, PlanRequest(model="tiny")))
        waiting = [asyncio.create_task(answer(coordinator, max_tokens=3)) for _ in range(2)]
        while stats.sequences.waiting < 3:
            await asyncio.sleep(0)
            stats = coordinator.stats()
            assert stats is not None
        with pytest.raises(OverloadedError) as refused:
            await answer(coordinator, max_tokens=3)
        assert refused.value.retry_after_s >= 1
        with pytest.raises(RequestError, match="serves tiny"):
            await answer(coordinator, model="other")
        assert not preparing.done()
        going_on.set()
        assert [one.text for one in await asyncio.gather(*waiting)] == ["bcd", "bcd"]
        assert same_answer(await first, undisturbed)
        told = await preparing
        assert told[0] == Announcement(text="Waiting for what is under way.")
        assert isinstance(told[-1], Ready)
        assert told[-1].plan.pipelines[0].epoch == 2
        stats = coordinator.stats()
        assert stats is not None
        assert (stats.counts.length, stats.counts.refused, stats.counts.failed) == (4, 1, 0)


async def test_clients_that_leave_while_a_pipeline_is_lost_leave_nothing_behind(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        going_on = asyncio.Event()
        nodes[0].hooks["card"] = wait_for(going_on)
        at_step(5, nodes[1])
        asking = [asyncio.create_task(answer(coordinator, **SOME, n=2)) for _ in range(3)]
        await comes_to(coordinator, "planning")
        while (stats := coordinator.stats()) is None or len(stats.requests) < 6:  # noqa: ASYNC110  # until the last of them is read
            await asyncio.sleep(0.01)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        stats = coordinator.stats()
        assert stats is not None
        assert (stats.sequences.waiting, stats.sequences.leaving, stats.counts.cancelled) == (0, 0, 6)
        going_on.set()
        assert (await answer(coordinator, max_tokens=3)).text == "bcd"


async def test_a_coordinator_that_ends_while_a_pipeline_is_lost_says_so(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes:
        async with coordinator_of(nodes) as coordinator:
            await prepared(coordinator, split("a", "b"))
            nodes[0].hooks["card"] = for_ever
            at_step(5, nodes[1])
            asking = asyncio.create_task(answer(coordinator, **SOME))
            await comes_to(coordinator, "planning")
        with pytest.raises(NoCoordinatorError, match="ending"):
            await asking


async def test_files_that_changed_meanwhile_end_the_answers(card: ModelCard, tmp_path: Path) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))

        async def changed(node: FakeNode) -> None:
            for each in nodes:
                each.card = tiny_card(tmp_path, TinyModel(layers=6, seed=1))
            await kill_worker(node)

        at_step(5, nodes[1], changed)
        with pytest.raises(StageFailedError, match=r"killed.*files of model tiny\.gguf are not what they were"):
            await answer(coordinator, **SOME)
        assert (await answer(coordinator, max_tokens=2)).text == "bc"


def wait_for(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        await event.wait()

    return wait
