"""A pipeline in virtual time: stages that take as long as their rows cost, links that take as long as a hop.

Drives a scheduler as the engine does, and writes down when tokens came and how long stages computed. A step passes the
stages in order; a stage computes one step at a time. Nothing here waits.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from coordinator.scheduling.events import Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from layerline.frames import StageTiming
from layerline.step_result import SampledToken, StepResult

TOKEN = 1  # what is drawn, always


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCost:
    """What a step costs a stage, in microseconds."""

    fixed_us: int = 0
    prompt_row_us: int = 0
    decode_row_us: int = 0

    def of(self, step: Step) -> int:
        """The time of `step`."""
        return self.fixed_us + self.prompt_row_us * step.prompt_rows + self.decode_row_us * step.decode_rows


class TimedPipeline:
    """A scheduler, its stages and the time, `now_us`."""

    def __init__(self, scheduler: Scheduler, costs: Sequence[StageCost], *, hop_us: int = 0) -> None:
        self.scheduler = scheduler
        self.now_us = 0
        self.steps: list[Step] = []
        self.busy_us = [0] * len(costs)
        self.token_times_us: dict[int, list[int]] = defaultdict(list)
        self._costs = costs
        self._hop_us = hop_us
        self._free_us = [0] * len(costs)  # when each stage is done with what it has
        self._results: deque[tuple[int, int, StepResult]] = deque()  # sent, back, what

    def ask(self, sequence: int, prompt_tokens: int, max_tokens: int = 1) -> None:
        """A request whose prompt shares nothing with those of other sequences."""
        token_ids = (sequence, *range(prompt_tokens - 1))
        self.scheduler.add(SequenceRequest(sequence=sequence, token_ids=token_ids, max_tokens=max_tokens))

    def run(self, *, until_tokens: int = 1 << 30, of: int = 0, until_steps: int = 1 << 30) -> None:
        """Runs until sequence `of` has that many tokens, that many steps are sent, or nothing is left to do."""
        while len(self.token_times_us[of]) < until_tokens:
            while (step := self.scheduler.next_step()) is not None:
                self._send(step)
                if len(self.steps) == until_steps:
                    return
            if not self._results:
                return
            self._receive()

    def gaps_us(self, sequence: int, *, since_us: int = 0) -> list[int]:
        """The times between the tokens of a sequence from `since_us` on."""
        times = [time for time in self.token_times_us[sequence] if time >= since_us]
        return [after - before for before, after in pairwise(times)]

    def _send(self, step: Step) -> None:
        self.steps.append(step)
        time_us, timings = self.now_us, []
        for stage, cost in enumerate(self._costs):
            compute_us = cost.of(step)
            time_us = max(time_us + self._hop_us, self._free_us[stage]) + compute_us
            self._free_us[stage] = time_us
            self.busy_us[stage] += compute_us
            timings.append(StageTiming(stage_index=stage, compute_us=compute_us))
        sampled = tuple(
            SampledToken(sequence=span.sequence, position=position, token_id=TOKEN)
            for span in step.spans
            for position in span.sampled_positions
        )
        result = StepResult(epoch=1, step=step.number, sampled=sampled, timings=tuple(timings))
        self._results.append((self.now_us, time_us + self._hop_us, result))

    def _receive(self) -> None:
        sent_us, self.now_us, result = self._results.popleft()
        for event in self.scheduler.complete(result, took_us=self.now_us - sent_us):
            if isinstance(event, Token):
                self.token_times_us[event.sequence].append(self.now_us)
