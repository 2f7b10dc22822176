"""The engine and the scheduler over stages in memory that only count on from the last token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from coordinator.engine import Answer, Engine
from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Ended, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.stats.recorder import Recorder
from layerline.errors import (
    DeadlineError,
    InternalError,
    LayerlineError,
    NodeLostError,
    OverloadedError,
    PromptTooLongError,
    ProtocolError,
    StageFailedError,
)
from layerline.frames import Frame
from layerline.link import Receiver, Sender
from layerline.step_result import StepResult
from tests.fakes.driven_engine import driven
from tests.fakes.echo_stage import EchoStage
from tests.fakes.memory_ring import memory_ring, route

DEADLINE_S = 20.0


class Running:
    """An engine at work, its scheduler, and what it said of a broken ring."""

    def __init__(self, engine: Engine, scheduler: Scheduler, broken: asyncio.Queue[LayerlineError]) -> None:
        self.engine = engine
        self.scheduler = scheduler
        self.broken = broken

    async def ask(self, first: int, count: int) -> list[int]:
        async with self.engine.answer(request(first, count)) as answer:
            return await drained(answer)


def request(first: int, count: int, prompt_tokens: int = 5) -> Callable[[int], SequenceRequest]:
    prompt = tuple(range(first - prompt_tokens + 1, first + 1))
    return lambda number: SequenceRequest(sequence=number, token_ids=prompt, max_tokens=count)


async def drained(answer: Answer) -> list[int]:
    tokens = []
    while not isinstance(event := await answer.next_event(), Ended):
        assert isinstance(event, Token)
        tokens.append(event.token_id)
    return tokens


class AlteredResults:
    """The results of a ring, with these fields changed."""

    def __init__(self, results: Receiver[StepResult], changes: dict[str, int]) -> None:
        self._results = results
        self._changes = changes

    async def receive(self) -> StepResult:
        result = await self._results.receive()
        return StepResult(
            epoch=self._changes.get("epoch", result.epoch),
            step=self._changes.get("step", result.step),
            sampled=result.sampled,
            timings=result.timings,
        )

    async def close(self) -> None:
        await self._results.close()


class NotedFrames:
    """The frames of a ring; notes each in `story`, and fails at the step `fails_at`."""

    def __init__(self, frames: Sender[Frame], story: list[str], fails_at: int = 0) -> None:
        self._frames = frames
        self._story = story
        self._fails_at = fails_at

    async def send(self, item: Frame) -> None:
        self._story.append(f"sent {item.spans[0].end}")
        if item.step == self._fails_at:
            raise NodeLostError("the link broke")
        await self._frames.send(item)

    async def close(self) -> None:
        await self._frames.close()


def capacity(stages: int, *, pages: int = 64, max_waiting: int = 64) -> Capacity:
    return Capacity(
        pages=pages,
        page_tokens=4,
        max_rows=16,
        chunk_tokens=8,
        context_tokens=128,
        max_in_flight=stages,
        max_waiting=max_waiting,
    )


@asynccontextmanager
async def running(*stages: EchoStage, pages: int = 64, max_waiting: int = 64) -> AsyncIterator[Running]:
    scheduler = Scheduler(capacity(len(stages), pages=pages, max_waiting=max_waiting))
    engine = Engine(scheduler, Recorder(route(len(stages))))
    async with asyncio.timeout(DEADLINE_S), memory_ring(stages) as ring, driven(engine, ring) as broken:
        yield Running(engine, scheduler, broken)


def stages(count: int, fails_at: int | None = None) -> list[EchoStage]:
    return [EchoStage(last=index == count - 1, fails_at=fails_at if index == 0 else None) for index in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_many_answers_at_once_are_those_of_each_alone(count: int) -> None:
    async with running(*stages(count)) as run:
        answers = await asyncio.gather(*(run.ask(100 * n + 50, 7 + n) for n in range(12)))
        assert answers == [[100 * n + 51 + i for i in range(7 + n)] for n in range(12)]
        assert run.scheduler.idle
        assert run.scheduler.pool.used_pages == 0


@pytest.mark.parametrize("fails_at", [0, 3])
async def test_the_next_step_leaves_before_anybody_is_told_of_the_last(fails_at: int) -> None:
    """And if it cannot leave, what the last one brought is told all the same."""
    story: list[str] = []
    scheduler = Scheduler(capacity(1))
    engine = Engine(scheduler, Recorder(route(1)))
    async with asyncio.timeout(DEADLINE_S), memory_ring(stages(1)) as whole:
        ring = replace(whole, frames=NotedFrames(whole.frames, story, fails_at))
        async with driven(engine, ring), engine.answer(request(50, 4)) as answer:
            for _ in range(2 if fails_at else 4):
                event = await answer.next_event()
                assert isinstance(event, Token)
                story.append(f"told {event.position}")
    told = ["sent 5", "sent 6", "told 5", "sent 7", "told 6"]
    assert story == (told if fails_at else [*told, "sent 8", "told 7", "told 8"])


async def test_leaving_early_frees_everything() -> None:
    async with running(*stages(2)) as run:
        async with run.engine.answer(request(50, 60)) as answer:
            await answer.next_event()
        assert await run.ask(60, 2) == [61, 62]  # steps of the cancelled one are back by the time this is answered
        assert run.scheduler.idle
        assert run.scheduler.pool.used_pages == 0


async def test_an_answer_whose_rows_are_not_numbers_ends_alone() -> None:
    """First in its prompt, then in the middle of the answer; the others go on, also those with the same beginning."""
    async with running(EchoStage(last=False), EchoStage(last=True, bad_token=99)) as run:
        others = [asyncio.create_task(run.ask(first, 9)) for first in (50, 60)]
        for first, prompt_tokens in ((99, 5), (101, 21), (95, 20)):
            with pytest.raises(StageFailedError, match="not numbers"):
                async with run.engine.answer(request(first, 9, prompt_tokens)) as answer:
                    await drained(answer)
        assert [await other for other in others] == [list(range(51, 60)), list(range(61, 70))]
        assert await run.ask(90, 3) == [91, 92, 93]
        assert (run.engine.failed, run.broken.empty()) == (None, True)
        assert run.scheduler.idle
        run.scheduler.check()


async def test_forks_share_the_whole_pages_of_their_prompt() -> None:
    async with running(*stages(2)) as run:
        async with run.engine.answer(request(50, 60, prompt_tokens=21), forks=3) as answer:
            numbers = [one.sequence for one in answer.requests]
            begun: set[int] = set()
            while begun != set(numbers):
                begun.add((await answer.next_event()).sequence)
            assert run.scheduler.pool.used_pages == 5 + 3 * 15, "60 positions of each are its own, 20 are shared"
            assert run.scheduler.figures().hit_tokens == 2 * 20
        assert await run.ask(60, 2) == [61, 62]  # steps of the cancelled ones are back by the time this is answered
        assert run.scheduler.idle
        assert run.scheduler.pool.used_pages == 0


async def test_forks_answer_side_by_side_and_may_end_one_by_one() -> None:
    async with running(*stages(2)) as run:
        tokens: dict[int, list[int]] = {}
        async with run.engine.answer(request(50, 9), forks=3) as answer:
            first, second, third = (one.sequence for one in answer.requests)
            reasons: dict[int, str] = {}
            while len(reasons) < 3:
                event = await answer.next_event()
                if isinstance(event, Ended):
                    reasons[event.sequence] = event.reason
                    continue
                assert isinstance(event, Token)
                tokens.setdefault(event.sequence, []).append(event.token_id)
                if event.sequence == second:
                    answer.finish(second)
        assert tokens[first] == tokens[third] == list(range(51, 60))
        assert tokens[second][0] == 51
        assert reasons == {first: "length", second: "stop", third: "length"}
        assert run.scheduler.idle


async def test_forks_that_do_not_all_fit_in_the_queue_are_refused_together() -> None:
    async with running(*stages(1), max_waiting=2) as run:
        with pytest.raises(OverloadedError):
            async with run.engine.answer(request(50, 1), forks=3):
                pass
        assert run.scheduler.idle
        assert await run.ask(50, 1) == [51]


async def test_a_broken_stage_ends_all_forks_with_its_error() -> None:
    async with running(*stages(2, fails_at=1)) as run, run.engine.answer(request(50, 20), forks=3) as answer:
        run.engine.fail(await run.broken.get())
        with pytest.raises(StageFailedError):
            await answer.next_event()


async def test_a_broken_stage_ends_every_answer_with_its_error() -> None:
    async with running(*stages(2, fails_at=3)) as run:
        asking = [asyncio.create_task(run.ask(50, 20)) for _ in range(3)]
        error = await run.broken.get()
        run.engine.fail(error)
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(error, StageFailedError)
        assert error.node == "n0"
        assert outcomes == [error] * 3
        with pytest.raises(StageFailedError):
            await run.ask(50, 1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"epoch": 2}, "epoch 2 in epoch 1"), ({"step": 7}, "the step due is 1")],
)
async def test_a_result_that_is_not_of_this_step_and_epoch_is_refused(changes: dict[str, int], says: str) -> None:
    async with asyncio.timeout(DEADLINE_S), memory_ring(stages(2)) as ring:
        engine = Engine(Scheduler(capacity(2)), Recorder(route(2)))
        altered = replace(ring, results=AlteredResults(ring.results, changes))
        async with driven(engine, altered) as broken, engine.answer(request(50, 3)):
            error = await broken.get()
    assert isinstance(error, ProtocolError)
    assert says in error.message
    assert error.node == "n1"


async def test_whatever_the_engine_meets_ends_it_with_an_error_of_ours() -> None:
    class Panic(BaseException):
        """As a Rust library's is."""

    class Panicking(AlteredResults):
        async def receive(self) -> StepResult:
            await super().receive()
            raise Panic

    async with asyncio.timeout(DEADLINE_S), memory_ring(stages(2)) as ring:
        engine = Engine(Scheduler(capacity(2)), Recorder(route(2)))
        panicking = replace(ring, results=Panicking(ring.results, {}))
        async with driven(engine, panicking) as broken, engine.answer(request(50, 3)):
            error = await broken.get()
    assert isinstance(error, InternalError)
    assert "Panic" in error.message


async def test_a_step_that_does_not_come_back_in_time_is_told_with_the_nodes() -> None:
    class Deaf(AlteredResults):
        async def receive(self) -> StepResult:
            await super().receive()
            return await asyncio.Future[StepResult]()

    async with asyncio.timeout(DEADLINE_S), memory_ring(stages(2)) as ring:
        engine = Engine(Scheduler(capacity(2)), Recorder(route(2)), step_deadline_s=0.05)
        deaf = replace(ring, results=Deaf(ring.results, {}))
        async with driven(engine, deaf) as broken, engine.answer(request(50, 3)):
            error = await broken.get()
    assert isinstance(error, DeadlineError)
    assert "the nodes n0, n1" in error.message


async def test_a_refused_request_leaves_nothing_behind() -> None:
    async with running(*stages(1)) as run:
        with pytest.raises(PromptTooLongError, match="200"):
            async with run.engine.answer(request(400, 1, prompt_tokens=200)):
                pass
        assert await run.ask(50, 1) == [51]
