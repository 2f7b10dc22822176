"""Drives the scheduler over the ring: steps out as long as there are any, results in, events to who waits.

Owns the numbers of sequences and the queue of each answer. Knows token ids only; text is `coordinator.answers`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from coordinator.ring import Ring
from coordinator.scheduling.events import Ended, Event, Failed, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.stats.recorder import Recorder
from layerline.errors import DeadlineError, InternalError, LayerlineError, ProtocolError
from layerline.frames import StepResult
from layerline.stats_report import StatsReport

STEP_DEADLINE_S = 120.0

log = logging.getLogger(__name__)


class Answer:
    """The events of the sequences that answer one prompt, for the one who asked, as they come.

    Bounded by the tokens that a context holds, for each sequence.
    """

    def __init__(self, requests: Sequence[SequenceRequest], finish: Callable[[int], None]) -> None:
        self.requests = tuple(requests)
        self._finish = finish
        self._events: asyncio.Queue[Token | Ended | LayerlineError] = asyncio.Queue()

    def put(self, event: Token | Ended | LayerlineError) -> None:
        """Hands over an event, or the error that ends the answer."""
        self._events.put_nowait(event)

    async def next_event(self) -> Token | Ended:
        """The next event of any of the sequences; raises the error that ended them all."""
        event = await self._events.get()
        if isinstance(event, LayerlineError):
            raise event
        return event

    def finish(self, sequence: int) -> None:
        """The text of that sequence is complete; no further token of it is wanted."""
        self._finish(sequence)


class Engine:
    """One pipeline at work. `failed` holds the error that ended it, once there is one."""

    def __init__(
        self, scheduler: Scheduler, ring: Ring, recorder: Recorder, *, on_broken: Callable[[LayerlineError], None]
    ) -> None:
        self._scheduler = scheduler
        self._ring = ring
        self._recorder = recorder
        self._on_broken = on_broken
        self._numbers = itertools.count(1)
        self._answers: dict[int, Answer] = {}  # by sequence
        self._work = asyncio.Event()
        self._overdue: asyncio.TimerHandle | None = None
        self.failed: LayerlineError | None = None

    @asynccontextmanager
    async def answer(self, make_request: Callable[[int], SequenceRequest], forks: int = 1) -> AsyncIterator[Answer]:
        """Adds `forks` forks of the request that `make_request` makes of a sequence number.

        Leaving the block cancels them. Raises what the scheduler says against one of them, and then has none, or the
        error that ended the pipeline.
        """
        if self.failed:
            raise self.failed
        first = make_request(next(self._numbers))
        requests = (first, *(first.fork(next(self._numbers), index) for index in range(1, forks)))
        answer = Answer(requests, self._finish)
        try:
            for request in requests:
                self._add(request)
                self._answers[request.sequence] = answer
            self._work.set()
            yield answer
        finally:
            for request in requests:
                self._answers.pop(request.sequence, None)
                self._tell(self._scheduler.cancel(request.sequence))

    async def run(self) -> None:
        """Works until cancelled, or until the ring breaks, which `on_broken` hears of."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send_steps())
                group.create_task(self._take_results())
        except ExceptionGroup as failures:
            first = failures.exceptions[0]
            self._on_broken(first if isinstance(first, LayerlineError) else _internal(first))
        finally:
            self._call_off_deadline()

    def fail(self, error: LayerlineError) -> None:
        """Ends every answer, now and to come, with `error`; the first error stays."""
        if self.failed:
            return
        self.failed = error
        self._recorder.failed()
        for answer in set(self._answers.values()):
            answer.put(error)

    def stats(self) -> StatsReport:
        """How the work goes."""
        return self._recorder.report(self._scheduler.figures())

    def count_refusal(self) -> None:
        """A request was refused, here or before it came so far."""
        self._recorder.refused()

    def _add(self, request: SequenceRequest) -> None:
        try:
            self._scheduler.add(request)
        except LayerlineError:
            self.count_refusal()
            raise
        self._recorder.queued(request)

    async def _send_steps(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while (step := self._scheduler.next_step()) is not None:
                self._watch_deadline()
                with self._recorder.sending(step):
                    await self._ring.frames.send(step.frame(self._ring.epoch))

    async def _take_results(self) -> None:
        while True:
            result = await self._ring.results.receive()
            self._tell(self._completed(result))
            self._call_off_deadline()
            self._watch_deadline()
            self._work.set()

    def _completed(self, result: StepResult) -> tuple[Event, ...]:
        try:
            events = self._scheduler.complete(result, took_us=self._recorder.took_us)
        except ProtocolError as error:
            error.node = error.node or self._ring.nodes[-1]
            raise
        self._recorder.returned(result)
        return events

    def _tell(self, events: tuple[Event, ...]) -> None:
        self._recorder.told(events)
        for event in events:
            answer = self._answers.get(event.sequence)
            if answer:
                answer.put(event.error if isinstance(event, Failed) else event)
        self._work.set()  # pages may have become free

    def _finish(self, sequence: int) -> None:
        self._tell(self._scheduler.finish(sequence))

    def _watch_deadline(self) -> None:
        """The oldest step in flight has its deadline, however many follow it."""
        if self._overdue is None and self._scheduler.steps_in_flight:
            self._overdue = asyncio.get_running_loop().call_later(STEP_DEADLINE_S, self._late)

    def _call_off_deadline(self) -> None:
        overdue, self._overdue = self._overdue, None
        if overdue:
            overdue.cancel()

    def _late(self) -> None:
        nodes = ", ".join(self._ring.nodes)
        message = f"A step did not come back within {STEP_DEADLINE_S:.0f} s from the nodes {nodes}."
        self._on_broken(DeadlineError(message, remedy="Look at their logs and restart the one that hangs."))


def _internal(failure: Exception) -> InternalError:
    log.error("The engine failed.", exc_info=failure)
    return InternalError(f"Internal error: {failure!r}.", remedy="This is a bug; please report it with the log.")
