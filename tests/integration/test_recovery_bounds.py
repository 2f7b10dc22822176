"""Pipelines that do not come back, and what is told, taken and refused while one is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from layerline.errors import (
    NoCoordinatorError,
    NodeLostError,
    OverloadedError,
    RequestError,
    StageFailedError,
)
from layerline.frames import Frame
from layerline.models.card import ModelCard
from layerline.plan_request import PlanRequest
from layerline.reports import Announcement, Ready
from layerline.requests import GenerateRequest
from tests.fakes.coordinators import BOUNDS, answer, coordinator_of, events_of, prepared, split
from tests.fakes.losses import comes_to, epoch_of, for_ever
from tests.fakes.model_files import TinyModel
from tests.fakes.node_service import MODEL, FakeNode, nodes_of, tiny_card
from tests.fakes.recoveries import SOME, TOKENS, at_step, joined_of, kill_worker, same_answer, wait_for

pytestmark = pytest.mark.usefixtures("nothing_left_over")
POISON = 255


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
