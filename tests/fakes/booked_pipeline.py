"""Stages and links in virtual time whose steps are told to a recorder, as the engine and the stages would tell it."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.scheduling.events import Event
from coordinator.scheduling.step import Step
from coordinator.stats.recorder import Recorder
from coordinator.stats.route import Route
from layerline.frames import PageRun, Sampling, Span, StageTiming
from layerline.step_result import SampledToken, StepResult
from tests.fakes.memory_ring import route


class HandClock:
    """Seconds that go on when they are told to."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def step(number: int, *, prompt_rows: int = 0, sequences: Sequence[int] = (1,)) -> Step:
    """A step with one decode row of each of `sequences`, or with rows of a prompt of the only one."""
    rows = prompt_rows or 1
    spans = tuple(
        Span(sequence=sequence, start=0, count=rows, pages=(PageRun(first=0, count=1),), draws=1, sampling=Sampling())
        for sequence in sequences
    )
    decode_rows = 0 if prompt_rows else len(sequences)
    return Step(number=number, spans=spans, token_ids=(0,) * rows * len(sequences), decode_rows=decode_rows)


class BookedPipeline:
    """Every step takes `compute_s[stage]` there and `hop_s[link]` on the way; stages and links keep the order."""

    def __init__(self, compute_s: Sequence[float], hop_s: Sequence[float] | None = None) -> None:
        self.clock = HandClock()
        self.route: Route = route(len(compute_s))
        self.recorder = Recorder(self.route, self.clock)
        self._compute_s = compute_s
        self._hop_s = hop_s or [0.0] * (len(compute_s) + 1)
        self._done_s: list[float | None] = [None] * len(compute_s)
        self._steps = 0
        self._returning: list[tuple[float, StepResult]] = []

    def send(self, *, prompt_rows: int = 0, sequences: Sequence[int] = (1,)) -> None:
        """Sends a step now."""
        self._steps += 1
        sent = step(self._steps, prompt_rows=prompt_rows, sequences=sequences)
        with self.recorder.sending(sent):
            pass
        time_s, timings = self.clock.now_s, []
        for stage, compute_s in enumerate(self._compute_s):
            time_s += self._hop_s[stage]
            done_s = self._done_s[stage]
            waited_s = 0.0 if done_s is None else max(0.0, time_s - done_s)
            time_s = (time_s if done_s is None else max(time_s, done_s)) + compute_s
            self._done_s[stage] = time_s
            timings.append(
                StageTiming(
                    stage_index=stage, compute_us=round(1e6 * compute_s), waited_us=round(1e6 * waited_s), sending_us=0
                )
            )
        sampled = tuple(SampledToken(sequence=span.sequence, position=span.end, token_id=1) for span in sent.spans)
        result = StepResult(epoch=1, step=sent.number, sampled=sampled, timings=tuple(timings))
        self._returning.append((time_s + self._hop_s[-1], result))

    def receive(self, *events: Event) -> None:
        """Goes on until the oldest step is back, and tells what came of it."""
        self.clock.now_s, result = self._returning.pop(0)
        self.recorder.returned(result)
        self.recorder.told(events)
