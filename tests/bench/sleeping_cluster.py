"""The coordinator's engine and scheduler over stages that sleep, each in a process of its own, on loopback gRPC."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from coordinator.concurrency import ended
from coordinator.engine import Engine
from coordinator.ring import Ring
from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Ended
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.stats.recorder import Recorder
from layerline.errors import LayerlineError
from tests.bench import usage
from tests.bench.sleeping_stage import TOKEN, SleepingPlace
from tests.bench.streams import Stream
from tests.fakes.grpc_ring import dialled
from tests.fakes.memory_ring import route

CHUNK_ROWS = 16  # the least that the scheduler makes of a prompt that nobody waits beside, so that there are no others
CONTEXT_TOKENS = 4096
PAGE_TOKENS = 16
MAX_ROWS = 64
START_DEADLINE_S = 30.0
ANSWER_DEADLINE_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RowTimes:
    """What a row takes the whole model, which stages have equal parts of."""

    prompt_s: float
    decode_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefilled:
    """The speed of a prompt, and the part of the stages' time in which they did not compute."""

    tokens_per_s: float
    bubble_share: float


class SleepingCluster:
    """A model in service that takes its time. Prompts share nothing with each other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._first_ids = itertools.count()

    async def prefill(self, chunks: int) -> Prefilled:
        """Prefills one prompt of so many chunks, with nothing beside it."""
        before = self._engine.stats().total
        (stream,) = await self.ask(1, prompt_tokens=chunks * CHUNK_ROWS, max_tokens=1)
        after = self._engine.stats().total
        working_s = after.working_s - before.working_s
        busy_s = sum(stage.busy_s for stage in after.stages) - sum(stage.busy_s for stage in before.stages)
        return Prefilled(
            tokens_per_s=stream.prompt_tokens / stream.ttft_s,
            bubble_share=1 - busy_s / (working_s * len(after.stages)),
        )

    async def ask(self, streams: int, *, prompt_tokens: int, max_tokens: int) -> list[Stream]:
        """So many answers, all asked for at the same time."""
        asking = [self._answer(prompt_tokens, max_tokens) for _ in range(streams)]
        async with asyncio.timeout(ANSWER_DEADLINE_S):
            return await asyncio.gather(*asking)

    async def _answer(self, prompt_tokens: int, max_tokens: int) -> Stream:
        token_ids = (next(self._first_ids), *range(1, prompt_tokens))
        times_s: list[float] = []
        began_s = time.perf_counter()

        def request(number: int) -> SequenceRequest:
            return SequenceRequest(sequence=number, token_ids=token_ids, max_tokens=max_tokens)

        async with self._engine.answer(request) as answer:
            while not isinstance(event := await answer.next_event(), Ended):
                times_s.append(time.perf_counter() - began_s)
        return Stream(
            token_times_s=tuple(times_s),
            token_ids=(TOKEN,) * len(times_s),
            prompt_tokens=prompt_tokens,
            finish_reason=event.reason,
        )


@asynccontextmanager
async def sleeping_cluster(stages: int, times: RowTimes) -> AsyncIterator[SleepingCluster]:
    """A cluster of that many nodes for the time of the block."""
    capacity = Capacity(
        pages=CONTEXT_TOKENS // PAGE_TOKENS,
        page_tokens=PAGE_TOKENS,
        max_rows=MAX_ROWS,
        chunk_tokens=CHUNK_ROWS,
        context_tokens=CONTEXT_TOKENS,
        max_in_flight=stages,
        max_waiting=64,
    )
    engine = Engine(Scheduler(capacity), Recorder(route(stages)))
    async with _sleeping_ring(stages, times, engine.fail) as ring:
        running = asyncio.create_task(_drive(engine, ring))
        try:
            yield SleepingCluster(engine)
        finally:
            await ended(running)


async def _drive(engine: Engine, ring: Ring) -> None:
    try:
        await engine.drive(ring)
    except LayerlineError as error:
        engine.fail(error)


@asynccontextmanager
async def _sleeping_ring(
    stages: int, times: RowTimes, on_broken: Callable[[LayerlineError], None]
) -> AsyncIterator[Ring]:
    """The ring through so many stages, started from the last to the first."""
    async with AsyncExitStack() as stack:
        addresses = [""]
        for index in reversed(range(stages)):
            asked = SleepingPlace(
                index=index,
                count=stages,
                next_address=addresses[0],
                prompt_row_s=times.prompt_s / stages,
                decode_row_s=times.decode_s / stages,
            )
            addresses.insert(0, await stack.enter_async_context(_running_stage(asked)))
        yield await stack.enter_async_context(dialled(addresses[:-1], on_broken))


@asynccontextmanager
async def _running_stage(asked: SleepingPlace) -> AsyncIterator[str]:
    """A stage's process for the time of the block; its address."""
    words = ["-m", "tests.bench.sleeping_stage", asked.to_json()]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_DEADLINE_S):
            address = (await process.stdout.readline()).decode().strip()
        usage.put_first([process.pid])
        yield address
    finally:
        process.stdin.close()
        await process.wait()
