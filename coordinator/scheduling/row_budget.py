"""Decides how many decode rows and prompt rows a step may carry. Whose rows they are is the scheduler's matter.

Prompt rows are few enough that running answers keep their pace, and as many as is fastest while there are none. That is
learned from the times that stages report with each result: the time of a step that only continues answers, at the
slowest stage and at all together, and the time that each prompt row adds. Both are exponential averages; the time of a
row is the quotient of two of them, so that a small step's noise counts little.

While sequences decode. The gap between two tokens of an answer is one round of its step. With S stages, K steps in
flight and D decoding sequences, all in min(D, K) steps, a round takes as long as one step's way through all stages or,
if that is more, as all those steps take at the slowest stage. With prompts each of the K steps carries a chunk, and a
decode row waits at the slowest stage for the chunks of the steps in front of its own: a round takes K times such a
step. So a step may take GAP_GROWTH / K of the old round there. The old round must not go stale under a load that never
ends. A step therefore goes without prompt rows, to measure one, if steps now have many more or fewer decode rows than
those that were measured, and in any case after OLD_STEPS. This is rare, because the steps behind it, which are longer,
make one gap of each answer longer than the others.

While no sequence decodes. Chunks of c rows bring P rows through K stages in (P/c + K-1) (a + bc), where a is the time
of any step and b that of a row (see `chunk_cost`); that is least for c = sqrt(P a / ((K-1) b)). One stage has the whole
step. A step is kept below STEP_US, so that the next request does not wait long, and no step passes its deadline.

Knows no clock, no sequence and no page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from coordinator.scheduling.average import Average
from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.chunk_cost import ChunkCost
from layerline.frames import StageTiming

GAP_GROWTH = 2.0  # of the 2.5 that an answer's gaps may grow; the rest is for what varies
KEPT_FOR_PROMPTS = 4  # one row in so many, while there are prompts
LEAST_ROWS = 4  # a prompt goes on by as many, whatever a row costs
FIRST_ROWS = 64  # before the cost of a row is known; 512 could take minutes on a slow machine
FIRST_ROWS_BESIDE_DECODES = 16
WHOLE_ROWS = 16  # chunks of prompts alone are a multiple of this, as matrix kernels like it
UNKNOWN_FIXED_ROWS = 16.0  # a / b before it is known
LEAST_FIXED_ROWS = 4.0  # for what a step costs beside its computing
STALE_STEPS = 64  # the least between two measurements for their own sake
STALE_ROWS_RATIO = 1.5
OLD_STEPS = 1024  # the most between two measurements
STEP_US = 1_000_000


class RowBudget:
    """The rows of a step of a pipeline of that `capacity`.

    `decoding` is always the number of sequences that decode, `steps` that of the steps that are then to be in flight.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._decode_us = Average()  # of a step without prompt rows, at the slowest stage
        self._decode_way_us = Average()  # of the same, at all stages together
        self._decode_rows = Average()  # of the same
        self._added_us = Average()  # by the prompt rows of a step, at the slowest stage
        self._added_rows = Average()
        self._chunk_cost = ChunkCost()
        self._proven_rows = 0  # that a step lately had; more than twice as many would be a leap in the dark
        self._since_decode = 0  # steps with both kinds of rows since one without prompt rows

    def learn(self, timings: Sequence[StageTiming], *, decode_rows: int, prompt_rows: int) -> None:
        """Takes in the times of a step that has come back."""
        if not timings:
            return
        times_us = [timing.compute_us for timing in timings]
        if prompt_rows == 0:
            self._decode_us.add(max(times_us))
            self._decode_way_us.add(sum(times_us))
            self._decode_rows.add(decode_rows)
            self._since_decode = 0
            return
        if decode_rows == 0:
            self._chunk_cost.learn(prompt_rows, max(times_us))
        self._added_us.add(max(times_us) - self._decode_us.value)
        self._added_rows.add(prompt_rows)
        self._proven_rows = max(prompt_rows, self._proven_rows // 2)
        self._since_decode += decode_rows > 0

    def decode_rows(self, *, prefilling: bool) -> int:
        """The most decode rows of a step, however many a sequence has.

        A quarter of the rows is kept for prompts while there are any, so that these go on under any number of decodes.
        """
        kept = min(self._capacity.chunk_tokens, self._capacity.max_rows // KEPT_FOR_PROMPTS) if prefilling else 0
        return self._capacity.max_rows - kept

    def prompt_rows(self, decoding: int, steps: int, *, prompt_tokens: int, decode_rows: int) -> int:
        """Prompt rows of a step with `decode_rows`, when `prompt_tokens` are being prefilled in all."""
        rows = self._rows_beside_decodes(decoding, steps) if decoding else self._rows_alone(prompt_tokens, steps)
        return min(rows, self._capacity.chunk_tokens, self._capacity.max_rows - decode_rows)

    def _rows_beside_decodes(self, decoding: int, steps: int) -> int:
        """The most prompt rows with which running answers keep their pace."""
        if self._is_stale(decoding / min(decoding, steps)):
            return 0
        row_us = self._row_us()
        if not row_us or not self._decode_us.value:
            return FIRST_ROWS_BESIDE_DECODES
        round_us = max(self._decode_way_us.value, min(decoding, steps) * self._decode_us.value)
        rows = (GAP_GROWTH * round_us / steps - self._decode_us.value) / row_us
        return max(LEAST_ROWS, int(min(rows, 2 * self._proven_rows)))

    def _rows_alone(self, prompt_tokens: int, steps: int) -> int:
        """The prompt rows with which prefilling is fastest while no sequence decodes."""
        row_us = self._row_us()
        rows = STEP_US / row_us if row_us else FIRST_ROWS
        if steps > 1:
            rows = min(rows, math.sqrt(prompt_tokens * self._fixed_rows(row_us) / (steps - 1)))
        return max(1, int(rows / WHOLE_ROWS + 0.5)) * WHOLE_ROWS

    def _fixed_rows(self, row_us: float) -> float:
        """The rows that cost as much as any step does; if all steps were equal, as much as a decode step does."""
        fixed_rows = self._chunk_cost.fixed_rows
        if fixed_rows is None and row_us and self._decode_us.value:
            fixed_rows = self._decode_us.value / row_us
        return UNKNOWN_FIXED_ROWS if fixed_rows is None else max(LEAST_FIXED_ROWS, fixed_rows)

    def _is_stale(self, decode_rows: float) -> bool:
        """Whether the time of a decode step is to be measured anew, now that such have `decode_rows`."""
        if self._since_decode < STALE_STEPS:
            return False
        ratio = decode_rows / max(1.0, self._decode_rows.value)
        return not 1 / STALE_ROWS_RATIO < ratio < STALE_ROWS_RATIO or self._since_decode >= OLD_STEPS

    def _row_us(self) -> float:
        """The time that a prompt row adds to a step at the slowest stage; 0 if that is not known."""
        if not self._added_rows.value:
            return 0.0
        return max(self._added_us.value / self._added_rows.value, 1e-3)
