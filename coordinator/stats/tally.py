"""Sums over a period, of the pipeline, of each stage and of each link. Times are in microseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.stats.distribution import Distribution
from layerline.frames import StageTiming

FOUND_WAITING_US = 500  # a stage that waited so long for a frame had none in its queue


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """A step that has come back. The pipeline had been empty for `idle_us` when it left, 0 if it was not empty.

    `link_bytes` are the bytes that it had on each link, from the first to the last.
    """

    prompt_rows: int
    decode_rows: int
    took_us: float
    idle_us: float
    timings: tuple[StageTiming, ...]
    link_bytes: tuple[int, ...]

    @property
    def travel_us(self) -> float:
        """The time of the step in which no stage computed it."""
        return max(0.0, self.took_us - sum(timing.compute_us for timing in self.timings))

    @property
    def had_no_queue(self) -> bool:
        """Whether every stage was waiting for the step."""
        return all(timing.waited_us >= FOUND_WAITING_US for timing in self.timings)


@dataclass(kw_only=True, slots=True)
class StageTally:
    """The sums of one stage; `waiting_us` counts only while steps were in flight."""

    computing: Distribution = field(default_factory=Distribution)
    waiting_us: float = 0.0
    sending_us: float = 0.0

    def take(self, timing: StageTiming, idle_us: float) -> None:
        """Takes in a step."""
        self.computing.add(timing.compute_us)
        self.waiting_us += max(0.0, timing.waited_us - idle_us)
        self.sending_us += timing.sending_us

    def merge(self, other: StageTally) -> None:
        """Adds the sums of `other`."""
        self.computing.merge(other.computing)
        self.waiting_us += other.waiting_us
        self.sending_us += other.sending_us


@dataclass(kw_only=True, slots=True)
class LinkTally:
    """The sums of one link."""

    frames: int = 0
    payload_bytes: int = 0
    sending_us: float = 0.0

    def merge(self, other: LinkTally) -> None:
        """Adds the sums of `other`."""
        self.frames += other.frames
        self.payload_bytes += other.payload_bytes
        self.sending_us += other.sending_us


@dataclass(kw_only=True, slots=True)
class Tally:
    """The sums of a pipeline. It has one link more than stages: the first from the coordinator, the last to it.

    `travel` counts only steps that met no queue; `least_travel_us` is the least of all steps.
    """

    stages: Sequence[StageTally]
    links: Sequence[LinkTally]
    working_us: float = 0.0
    prompt_rows: int = 0
    decode_rows: int = 0
    tokens: int = 0
    steps: Distribution = field(default_factory=Distribution)
    queueing: Distribution = field(default_factory=Distribution)
    first_tokens: Distribution = field(default_factory=Distribution)
    gaps: Distribution = field(default_factory=Distribution)
    travel: Distribution = field(default_factory=Distribution)
    least_travel_us: float = math.inf

    @classmethod
    def of(cls, stages: int) -> Tally:
        """An empty tally for a pipeline of that many stages."""
        return cls(stages=[StageTally() for _ in range(stages)], links=[LinkTally() for _ in range(stages + 1)])

    def take(self, step: StepRecord) -> None:
        """Takes in a step; its timings only if there is one of each stage."""
        self.prompt_rows += step.prompt_rows
        self.decode_rows += step.decode_rows
        self.steps.add(step.took_us)
        for link, payload_bytes in zip(self.links, step.link_bytes, strict=True):
            link.frames += 1
            link.payload_bytes += payload_bytes
        if len(step.timings) == len(self.stages):
            self._take_timings(step)

    def _take_timings(self, step: StepRecord) -> None:
        for stage, link, timing in zip(self.stages, self.links[1:], step.timings, strict=True):
            stage.take(timing, step.idle_us)
            link.sending_us += timing.sending_us
        travel_us = step.travel_us
        self.least_travel_us = min(self.least_travel_us, travel_us)
        if step.had_no_queue:
            self.travel.add(travel_us)

    def merge(self, other: Tally) -> None:
        """Adds the sums of `other`, which is of the same pipeline."""
        for stage, other_stage in zip(self.stages, other.stages, strict=True):
            stage.merge(other_stage)
        for link, other_link in zip(self.links, other.links, strict=True):
            link.merge(other_link)
        self.working_us += other.working_us
        self.prompt_rows += other.prompt_rows
        self.decode_rows += other.decode_rows
        self.tokens += other.tokens
        self.least_travel_us = min(self.least_travel_us, other.least_travel_us)
        for mine, others in zip(self._distributions(), other._distributions(), strict=True):
            mine.merge(others)

    def wire_us(self) -> tuple[float, ...]:
        """Estimates for each link how long a frame is on its way; the package's docstring tells how."""
        if not self.steps.count or math.isinf(self.least_travel_us):
            return (0.0,) * len(self.links)
        sending_us = [link.sending_us / max(1, link.frames) for link in self.links]
        travel_us = self.travel.mean_us if self.travel.count else self.least_travel_us
        shared_us = max(0.0, travel_us - sum(sending_us)) / len(self.links)
        return tuple(sent_us + shared_us for sent_us in sending_us)

    def _distributions(self) -> tuple[Distribution, ...]:
        return (self.steps, self.queueing, self.first_tokens, self.gaps, self.travel)
