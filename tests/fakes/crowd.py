"""A scheduler over real stages, moved on by chance, step by step in one thread.

Stages compute when a step is sent, results are taken whenever chance says so. Times are made up, so that the sizes of
chunks are the same on every machine and differ from seed to seed.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from typing import Any

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Event, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from layerline.frames import Frame, Sampling, StageTiming
from layerline.step_result import StepResult
from tests.fakes.tiny_models import PAGE_TOKENS, StageChain


class Crowd:
    """A scheduler over real stages, and chance."""

    def __init__(
        self,
        chain: StageChain,
        luck: random.Random,
        *,
        pages: int,
        context_tokens: int,
        reach_tokens: int = 0,
        page_tokens: int = PAGE_TOKENS,
        slots: int = 0,
    ) -> None:
        self._luck = luck
        self._chain = chain
        self._results: deque[StepResult] = deque()
        self.answers: dict[int, list[int]] = {}
        self.capacity = Capacity(
            pages=pages,
            page_tokens=page_tokens,
            max_rows=luck.choice([7, 16, 40]),
            chunk_tokens=luck.choice([3, 8, 40]),
            context_tokens=context_tokens,
            max_in_flight=len(chain.stages),
            max_waiting=64,
            open_ended_tokens=4,
            reach_tokens=reach_tokens,
            slots=slots,
        )
        self.scheduler = Scheduler(self.capacity)

    def ask(
        self, sequence: int, prompt: list[int], max_tokens: int, sampling: Sampling | None = None, **fields: Any
    ) -> None:
        """Adds a request; the further `fields` are the sequence's."""
        self.answers[sequence] = []
        sampling = sampling or Sampling()
        self.scheduler.add(
            SequenceRequest(
                sequence=sequence, token_ids=tuple(prompt), max_tokens=max_tokens, sampling=sampling, **fields
            )
        )

    def drain(self) -> None:
        """Moves until all who asked have their answers."""
        while not self.scheduler.idle:
            self.move()

    def move(self) -> None:
        """Sends a step or takes a result, whatever chance prefers and is possible."""
        step = self.scheduler.next_step() if self._luck.random() < 0.6 or not self._results else None
        if step is not None:
            self._results.append(self._computed(step))
        elif self._results:
            self._tell(self.scheduler.complete(self._results.popleft()))

    def cancel(self, sequence: int) -> None:
        self.scheduler.cancel(sequence)

    def lose(self) -> None:
        self.scheduler.lose()
        self._results.clear()

    def _computed(self, step: Step) -> StepResult:
        product: Frame | StepResult = step.frame(epoch=1)
        for stage in self._chain.stages:
            assert isinstance(product, Frame)
            product = stage.run(product)
        assert isinstance(product, StepResult)
        times_us = [self._luck.randrange(1, 3000) for _ in self._chain.stages]
        timings = [StageTiming(stage_index=index, compute_us=time) for index, time in enumerate(times_us)]
        return replace(product, timings=tuple(timings))

    def _tell(self, events: tuple[Event, ...]) -> None:
        for event in events:
            if isinstance(event, Token):
                self.answers[event.sequence].append(event.token_id)
