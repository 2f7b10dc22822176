"""The books that the engine keeps while it works over real stages' places, in memory and over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.embedded import embedded_coordinator
from coordinator.engine import Engine
from coordinator.ring import Ring
from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Ended
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.stats.recorder import Recorder
from layerline import AsyncClient
from layerline.errors import LayerlineError, OverloadedError, PromptTooLongError, RequestError, StageFailedError
from layerline.frames import StageTiming
from layerline.link import Receiver
from layerline.step_result import StepResult
from tests.fakes.coordinators import settings_for, split
from tests.fakes.driven_engine import driven
from tests.fakes.echo_stage import EchoStage
from tests.fakes.grpc_ring import grpc_ring
from tests.fakes.memory_ring import memory_ring, route
from tests.fakes.node_service import MODEL, nodes_of, tiny_card

DEADLINE_S = 20.0
Rings = Callable[[list[EchoStage]], AbstractAsyncContextManager[Ring]]


class HeardResults:
    """Hands results on as they come, and keeps what the stages said of their time."""

    def __init__(self, results: Receiver[StepResult]) -> None:
        self._results = results
        self.timings: list[StageTiming] = []

    async def receive(self) -> StepResult:
        result = await self._results.receive()
        self.timings += result.timings
        return result

    async def close(self) -> None:
        await self._results.close()

    def busy_s(self, stage: int) -> float:
        return sum(timing.compute_us for timing in self.timings if timing.stage_index == stage) / 1e6


class Running:
    """An engine at work, what it said of a broken ring, and what it heard of the stages."""

    def __init__(self, engine: Engine, broken: asyncio.Queue[LayerlineError], heard: HeardResults) -> None:
        self.engine = engine
        self.broken = broken
        self.heard = heard

    async def ask(self, tokens: int, prompt_tokens: int = 5) -> None:
        """Asks for so many tokens, and waits for all of them."""
        async with self.engine.answer(request(tokens, prompt_tokens)) as answer:
            while not isinstance(await answer.next_event(), Ended):
                pass


def request(tokens: int, prompt_tokens: int) -> Callable[[int], SequenceRequest]:
    return lambda number: SequenceRequest(
        sequence=number, token_ids=tuple(range(100 * number, 100 * number + prompt_tokens)), max_tokens=tokens
    )


@asynccontextmanager
async def running(rings: Rings, *stages: EchoStage, max_waiting: int = 64) -> AsyncIterator[Running]:
    capacity = Capacity(
        pages=64,
        page_tokens=4,
        max_rows=16,
        chunk_tokens=8,
        context_tokens=128,
        max_in_flight=len(stages),
        max_waiting=max_waiting,
    )
    engine = Engine(Scheduler(capacity), Recorder(route(len(stages))))
    async with asyncio.timeout(DEADLINE_S), rings(list(stages)) as ring:
        heard = HeardResults(ring.results)
        async with driven(engine, replace(ring, results=heard)) as broken:
            yield Running(engine, broken, heard)


def stages(count: int, fails_at: int | None = None) -> list[EchoStage]:
    return [EchoStage(last=index == count - 1, fails_at=fails_at if index == 0 else None) for index in range(count)]


@pytest.mark.parametrize("rings", [memory_ring, grpc_ring], ids=["memory", "grpc"])
@pytest.mark.parametrize("count", [1, 3])
async def test_what_was_done_is_in_the_books(rings: Rings, count: int) -> None:
    async with running(rings, *stages(count)) as run:
        await asyncio.gather(*(run.ask(6) for _ in range(4)))
        report = run.engine.stats()
    recent = report.recent
    assert (report.model, len(recent.stages), len(recent.links)) == ("tiny", count, count + 1)
    assert (recent.tokens, recent.prompt_rows, recent.decode_rows) == (24, 20, 20)
    assert [stage.steps for stage in recent.stages] == [recent.steps] * count
    assert [link.frames for link in recent.links] == [recent.steps] * (count + 1)
    assert [link.payload_bytes for link in recent.links] == [160, *[4000] * (count - 1), 96]
    for stage in recent.stages:
        assert stage.busy_s == pytest.approx(run.heard.busy_s(stage.stage))
        assert stage.busy_s > 0.0
        assert stage.bubble_share == pytest.approx(1 - stage.busy_share)
        assert 0.0 < stage.waiting_share <= 1.0
    assert recent.working_s <= recent.period_s
    assert (report.counts.length, report.steps_in_flight, report.pages.used) == (4, 0, 0)
    assert report.total.steps == recent.steps
    for asked in report.requests:
        assert (asked.state, asked.finish_reason) == ("ended", "length")
        assert (asked.prompt_tokens, asked.completion_tokens) == (5, 6)
        assert asked.first_token_s is not None
        assert asked.queue_s <= asked.first_token_s <= asked.age_s
    assert report.diagnosis


async def test_who_leaves_is_cancelled_and_who_is_running_is_shown() -> None:
    async with running(memory_ring, *stages(2)) as run, run.engine.answer(request(100, 5)) as answer:
        await answer.next_event()
        (shown,) = run.engine.stats().requests
        assert (shown.state, shown.finish_reason) == ("decoding", "")
        async with run.engine.answer(request(100, 5)) as other:
            await other.next_event()
        latest, oldest = run.engine.stats().requests
        assert (latest.state, latest.finish_reason, oldest.state) == ("ended", "cancelled", "decoding")


async def test_refusals_are_counted() -> None:
    async with running(memory_ring, *stages(1), max_waiting=1) as run:
        with pytest.raises(PromptTooLongError):
            await run.ask(1, prompt_tokens=200)
        async with run.engine.answer(request(100, 5)):
            with pytest.raises(OverloadedError):
                await run.ask(1)
        assert run.engine.stats().counts.refused == 2


async def test_a_broken_pipeline_is_in_the_books() -> None:
    async with running(memory_ring, *stages(2, fails_at=3)) as run:
        asking = [asyncio.create_task(run.ask(20)) for _ in range(3)]
        error = await run.broken.get()
        run.engine.fail(error)
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        report = run.engine.stats()
    assert isinstance(error, StageFailedError)
    assert outcomes == [error] * 3
    assert (report.counts.failed, report.counts.cancelled) == (3, 0)
    assert {asked.finish_reason for asked in report.requests} == {"failed"}


async def test_a_client_is_told_once_a_model_is_in_service(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        nodes_of(tiny_card(tmp_path), "a", "b") as nodes,
        embedded_coordinator(settings_for(nodes)) as embedded,
        AsyncClient(embedded.address) as client,
    ):
        with pytest.raises(RequestError, match="No model is in service"):
            await client.stats()
        async for _ in client.prepare("tiny", layers=split("a", "b").layers):
            pass
        await client.generate("a", max_tokens=5)
        report = await client.stats()
    assert (report.model, report.counts.length, report.recent.tokens) == (MODEL, 1, 5)
    assert [(stage.node, stage.first_layer, stage.last_layer) for stage in report.recent.stages] == [
        ("a", 0, 2),
        ("b", 3, 5),
    ]
    assert [link.sender for link in report.recent.links] == ["coordinator", "a", "b"]
    assert report.recent.links[1].payload_bytes > 0
