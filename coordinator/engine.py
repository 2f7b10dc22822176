"""Drives the scheduler over a ring: steps out as long as there are any, results in, events to who waits.

Owns the numbers of sequences and the queue of each answer, which outlive the ring: one after the other is driven, and
what had been begun goes on in the next. Knows token ids only; text is `coordinator.answering.answers`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from coordinator.balancing.ledger import ExpertLedger
from coordinator.concurrency import ended
from coordinator.ring import Ring
from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Ended, Event, Failed, Scored, Summed, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.stats.recorder import Recorder
from coordinator.stats.route import Route
from layerline.answer import StageSummary
from layerline.errors import (
    DeadlineError,
    LayerlineError,
    OverloadedError,
    PromptTooLongError,
    ProtocolError,
    RequestError,
    blamed_on,
    typed,
)
from layerline.stats_report import StatsReport
from layerline.step_result import StepResult

STEP_DEADLINE_S = 120.0
MOST_LOSSES = 3  # of pipelines, that an answer goes through without a token, score or sum: it may be what breaks them

Progress = Token | Scored | Summed | Ended

log = logging.getLogger(__name__)


class Answer:
    """The events of the sequences that answer one prompt, for the one who asked, as they come.

    Bounded by the tokens that a context holds, for each sequence. `losses` is how many pipelines were lost under it.
    """

    def __init__(self, requests: Sequence[SequenceRequest], finish: Callable[[int], None]) -> None:
        self.requests = tuple(requests)
        self.losses = 0
        self._finish = finish
        self._events: asyncio.Queue[Progress | LayerlineError] = asyncio.Queue()

    def put(self, event: Progress | LayerlineError) -> None:
        """Hands over an event, or the error that ends the answer."""
        self._events.put_nowait(event)

    async def next_event(self) -> Progress:
        """The next event of any of the sequences; raises the error that ended them all."""
        event = await self._events.get()
        if isinstance(event, LayerlineError):
            raise event
        return event

    def finish(self, sequence: int) -> None:
        """The text of that sequence is complete; no further token of it is wanted."""
        self._finish(sequence)


class Engine:
    """The answers of one model, over one pipeline after the other. `failed` is the error that ended it for good.

    A pipeline is driven with `drive`. After that `lose` and, for the next one, `renew` come before `drive`.
    """

    def __init__(self, scheduler: Scheduler, recorder: Recorder, *, step_deadline_s: float = STEP_DEADLINE_S) -> None:
        self._scheduler = scheduler
        self._recorder = recorder
        self._step_deadline_s = step_deadline_s
        self._numbers = itertools.count(1)
        self._answers: dict[int, Answer] = {}  # by sequence
        self._losses: Counter[int] = Counter()  # by sequence, since its last token or score
        self._work = asyncio.Event()
        self.worked = False  # whether the pipeline has done a step
        self.failed: LayerlineError | None = None

    @asynccontextmanager
    async def answer(self, make_request: Callable[[int], SequenceRequest], forks: int = 1) -> AsyncIterator[Answer]:
        """Adds `forks` forks of the request that `make_request` makes of a sequence number.

        Leaving the block cancels them. Raises what the scheduler says against one of them, and then has none, or the
        error that ended the engine.
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
                self._losses.pop(request.sequence, None)
                self._tell(self._scheduler.cancel(request.sequence))

    async def drive(self, ring: Ring) -> None:
        """Works until cancelled; raises what breaks the ring, as a LayerlineError whatever it was."""
        # Not a task group, of which the frame would keep what failed, and with it the links, until a collection.
        tasks: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(None) as deadline:
                tasks += [asyncio.create_task(work(ring, deadline)) for work in (self._send_steps, self._take_results)]
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            nodes = ", ".join(ring.nodes)
            message = f"A step did not come back within {self._step_deadline_s:.0f} s from the nodes {nodes}."
            remedy = "Look at their logs and restart the one that hangs."
            raise DeadlineError(message, remedy=remedy) from None
        finally:
            ending = tuple(tasks)
            tasks.clear()  # this frame lets go of them, as they have it by the deadline
            try:
                await ended(*ending)
            finally:
                del ending
        for task in done:
            if failure := task.exception():
                raise _typed(failure)

    def lose(self) -> None:
        """The pipeline is lost; the answers wait for the next one."""
        begun = [sequence for sequence in self._scheduler.lose() if sequence in self._answers]
        self._losses.update(begun)
        for answer in {self._answers[sequence] for sequence in begun}:
            answer.losses += 1
        self._recorder.lost()

    def stop(self, number: int) -> bool:
        """Ends the answer that has sequence `number`, with an error that says why; False if there is none."""
        answer = self._answers.get(number)
        if answer is None:
            return False
        error = RequestError("The request was stopped at the coordinator.", remedy="Ask again if it was a mistake.")
        answer.put(error)
        for request in answer.requests:
            self._answers.pop(request.sequence, None)
            self._tell(self._scheduler.cancel(request.sequence))
        return True

    def end_losers(self, error: LayerlineError) -> None:
        """Ends answers that went through the most losses without a token, with the `error` of the last of them.

        One of them may be what breaks the pipeline, most likely a young one; so it is the younger half of them.
        """
        sequences = sorted(sequence for sequence, losses in self._losses.items() if losses >= MOST_LOSSES)
        losers = {self._answers[sequence] for sequence in sequences[len(sequences) // 2 :]}
        for request in [request for answer in losers for request in answer.requests]:
            self._tell((Failed(sequence=request.sequence, error=error),))
            self._tell(self._scheduler.cancel(request.sequence))

    def renew(self, capacity: Capacity, route: Route, experts: Sequence[ExpertLedger] = ()) -> None:
        """The next pipeline, of that capacity, stands; answers that do not fit there end with an error."""
        self._recorder = self._recorder.succeeded_by(route, experts)
        self.worked = False
        self._tell(self._scheduler.renew(capacity))

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

    def stages(self) -> tuple[StageSummary, ...]:
        """The stages of the pipeline, or of the last one."""
        return self._recorder.stages

    @contextmanager
    def counting_refusals(self) -> Iterator[None]:
        """A block in which a request may be refused before it comes here: it is too long, or there are too many."""
        try:
            yield
        except (OverloadedError, PromptTooLongError):
            self._recorder.refused()
            raise

    def _add(self, request: SequenceRequest) -> None:
        try:
            self._scheduler.add(request)
        except LayerlineError:
            self._recorder.refused()
            raise
        self._recorder.queued(request)

    async def _send_steps(self, ring: Ring, deadline: asyncio.Timeout) -> None:
        self._work.set()
        while True:
            await self._work.wait()
            self._work.clear()
            while (step := self._scheduler.next_step()) is not None:
                if deadline.when() is None:
                    self._watch(deadline)
                with self._recorder.sending(step):
                    await ring.frames.send(step.frame(ring.epoch))

    async def _take_results(self, ring: Ring, deadline: asyncio.Timeout) -> None:
        while True:
            result = await ring.results.receive()
            with blamed_on(ring.nodes[-1]):
                events = self._completed(result, ring.epoch)
            self._watch(deadline)
            self._work.set()
            try:
                await asyncio.sleep(0)  # the next step leaves first, then those who wait write their texts
            finally:
                self._tell(events)

    def _completed(self, result: StepResult, epoch: int) -> tuple[Event, ...]:
        if result.epoch != epoch:
            raise ProtocolError(f"The last stage returned a step of epoch {result.epoch} in epoch {epoch}.")
        events = self._scheduler.complete(result, took_us=self._recorder.took_us)
        self._recorder.returned(result)
        self.worked = True
        return events

    def _tell(self, events: Iterable[Event]) -> None:
        events = tuple(events)
        self._recorder.told(events)
        for event in events:
            answer = self._answers.get(event.sequence)
            if isinstance(event, Token | Scored | Summed):
                self._losses.pop(event.sequence, None)
            if answer:
                answer.put(event.error if isinstance(event, Failed) else event)
        self._work.set()  # pages may have become free

    def _finish(self, sequence: int) -> None:
        self._tell(self._scheduler.finish(sequence))

    def _watch(self, deadline: asyncio.Timeout) -> None:
        """The oldest step in flight has its deadline, however many follow it."""
        if not deadline.expired():
            due_s = asyncio.get_running_loop().time() + self._step_deadline_s
            deadline.reschedule(due_s if self._scheduler.steps_in_flight else None)


def _typed(failure: BaseException) -> LayerlineError:
    if not isinstance(failure, LayerlineError):
        log.error("The engine failed.", exc_info=failure)
    return typed(failure)
