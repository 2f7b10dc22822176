"""How many: steps in flight, decode rows and prompt rows of a step. Whose rows they are is the scheduler's matter.

Owns what is learned from the times that results report. Knows numbers only, no sequence and no page.
"""

from __future__ import annotations

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.flight import Flight
from coordinator.scheduling.pacing import Pace
from coordinator.scheduling.step import Step
from coordinator.scheduling.turnover import Turnover
from layerline.frames import StepResult


class Tempo:
    """The numbers for a pipeline of that capacity; `decoding` is always how many sequences decode."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._flight = Flight(capacity.max_in_flight)
        self._pace = Pace()
        self.turnover = Turnover()

    def learn(self, step: Step, result: StepResult, took_us: float) -> None:
        """Takes in the result of a step that was back after `took_us`, 0 if that was not measured."""
        self._pace.learn(result.timings, decode_rows=step.decode_rows, prompt_rows=step.prompt_rows)
        self.turnover.work(result.timings)
        if took_us and step.prompt_rows == 0:
            self._flight.learn(result.timings, took_us)

    def steps(self, decoding: int) -> int:
        """Steps that are to be in flight.

        Chunks alone may be one more than decodes: it waits at the first stage, which so never waits for a result to
        travel. For decodes it would make every step smaller.
        """
        return self._flight.steps if decoding else self._flight.steps + 1

    def decode_rows(self, decoding: int, *, prefilling: bool) -> int:
        """Decode rows of a step: an equal part of the decoding sequences for each step that is to be in flight.

        Were they all in one step, the other stages would have nothing to do while one computes it. A quarter of
        the rows is kept for prompts while there are any, so that these go on under any number of decodes.
        """
        share = -(-decoding // self._flight.steps)
        kept = min(self._capacity.chunk_tokens, self._capacity.max_rows // 4) if prefilling else 0
        return min(share, self._capacity.max_rows - kept)

    def prompt_rows(self, decoding: int, *, prompt_tokens: int, decode_rows: int) -> int:
        """Prompt rows of a step with `decode_rows`, when `prompt_tokens` are being prefilled in all."""
        if decoding:
            rows = self._pace.rows_beside_decodes(decoding, self._flight.steps)
        else:
            rows = self._pace.rows_alone(prompt_tokens, self._flight.steps)
        return min(rows, self._capacity.chunk_tokens, self._capacity.max_rows - decode_rows)
