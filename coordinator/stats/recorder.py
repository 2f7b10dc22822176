"""Records the work of the engine as it happens, and reports on it at any time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from coordinator.balancing.ledger import ExpertLedger
from coordinator.scheduling.events import Event
from coordinator.scheduling.figures import SchedulerFigures
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from coordinator.stats.diagnosis import diagnosed
from coordinator.stats.report import page_stats, period_stats, sequence_stats, slot_stats
from coordinator.stats.request_log import RequestLog
from coordinator.stats.route import Route
from coordinator.stats.tally import StepRecord
from coordinator.stats.window import Window
from layerline.answer import StageSummary
from layerline.stats_report import StatsReport
from layerline.step_result import StepResult


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sent:
    """A step in flight, the time when it left, and for how long the pipeline had been empty then."""

    step: Step
    sent_s: float
    idle_us: float


class Recorder:
    """Collects the statistics of one pipeline, the way through which is `route`; `clock` is monotonic, in seconds.

    What rows chose of experts is in the ledgers of its stages.
    """

    def __init__(
        self, route: Route, clock: Callable[[], float] = time.monotonic, experts: Sequence[ExpertLedger] = ()
    ) -> None:
        self._route = route
        self._experts = tuple(experts)
        self._clock = clock
        self._up_since_s = self._changed_s = clock()
        self._window = Window(len(route.stages), self._up_since_s)
        self._requests = RequestLog()
        self._in_flight: deque[_Sent] = deque()

    @property
    def stages(self) -> tuple[StageSummary, ...]:
        """The stages of the pipeline."""
        return self._route.stages

    def succeeded_by(self, route: Route, experts: Sequence[ExpertLedger] = ()) -> Recorder:
        """The recorder of the next pipeline; the log of requests and the time of the model go on."""
        recorder = Recorder(route, self._clock, experts)
        recorder._requests, recorder._up_since_s = self._requests, self._up_since_s
        return recorder

    def queued(self, request: SequenceRequest) -> None:
        """The scheduler has taken a request."""
        self._requests.queue(request.sequence, len(request.token_ids), self._clock())

    def refused(self) -> None:
        """A request was refused: by the scheduler, or because too many were being prepared."""
        self._requests.refuse()

    @contextmanager
    def sending(self, step: Step) -> Iterator[None]:
        """A step leaves; the block ends when the first link has taken it."""
        now_s = self._clock()
        idle_us = 0.0 if self._in_flight else 1e6 * (now_s - self._changed_s)
        self._work_until(now_s)
        self._in_flight.append(_Sent(step=step, sent_s=now_s, idle_us=idle_us))
        self._requests.start((span.sequence for span in step.spans), self._window.now(now_s), now_s)
        yield
        taken_s = self._clock()
        self._window.now(taken_s).links[0].sending_us += 1e6 * (taken_s - now_s)

    @property
    def took_us(self) -> float:
        """Time since the oldest step in flight left; 0 if there is none."""
        return 1e6 * (self._clock() - self._in_flight[0].sent_s) if self._in_flight else 0.0

    def returned(self, result: StepResult) -> None:
        """The oldest step in flight has come back with this result."""
        now_s = self._clock()
        self._work_until(now_s)
        sent = self._in_flight.popleft()
        record = StepRecord(
            prompt_rows=sent.step.prompt_rows,
            decode_rows=sent.step.decode_rows,
            took_us=1e6 * (now_s - sent.sent_s),
            idle_us=sent.idle_us,
            timings=result.timings,
            link_bytes=self._route.link_bytes(len(sent.step.token_ids), result),
        )
        self._window.now(now_s).take(record)

    def told(self, events: Iterable[Event]) -> None:
        """The scheduler has told these events of sequences."""
        now_s = self._clock()
        tally = self._window.now(now_s)
        for event in events:
            self._requests.tell(event, tally, now_s)

    def lost(self) -> None:
        """The pipeline is lost, and no step comes back."""
        self._in_flight.clear()

    def failed(self) -> None:
        """Every answer ends."""
        self._requests.fail(self._clock())

    def report(self, figures: SchedulerFigures) -> StatsReport:
        """The report on the work so far."""
        now_s = self._clock()
        recent, recent_s = self._window.recent(now_s)
        total, total_s = self._window.total(now_s)
        return diagnosed(
            StatsReport(
                model=self._route.model,
                up_s=now_s - self._up_since_s,
                steps_in_flight=len(self._in_flight),
                oldest_step_s=self.took_us / 1e6,
                sequences=sequence_stats(figures),
                pages=page_stats(figures),
                slots=slot_stats(figures),
                experts=tuple(stats for ledger in self._experts if (stats := ledger.stats()) is not None),
                recent=period_stats(self._route, recent, recent_s),
                total=period_stats(self._route, total, total_s),
                counts=self._requests.counts(),
                requests=self._requests.stats(now_s),
                diagnosis=(),
            )
        )

    def _work_until(self, now_s: float) -> None:
        """Counts the time since the number of steps in flight changed."""
        if self._in_flight:
            self._window.now(now_s).working_us += 1e6 * (now_s - self._changed_s)
        self._changed_s = now_s
