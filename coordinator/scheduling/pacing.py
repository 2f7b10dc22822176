"""How many prompt rows a step may carry: few enough that running answers keep their pace, else what is fastest.

What is learned, from the times that stages report with each result: how long a step takes that only continues
answers, at the slowest stage and at all together, and how much longer each prompt row makes a step. Exponential
averages; the time of a row is the quotient of two, so that a small step's noise counts little.

While somebody decodes. An answer's gap between tokens is one round of its step. With S stages, K steps in flight and D
decoding sequences, all in min(D, K) steps, a round takes as long as one step's way through all stages or, if that is
more, as all those steps take at the slowest stage. With prompts every one of the K steps carries a chunk, and a
decode row waits at the slowest stage for the chunks of the steps in front of its own: a round takes K times
such a step. So a step may take GAP_GROWTH / K of the old round there. The old round must not go stale under a load that
never ends: if steps now have many more or fewer decode rows than those that were measured, and in any case at
long last, a step goes without prompt rows to measure one. Not more often, as the steps behind it, longer than it, make
one gap of each answer longer than the others.

While nobody decodes. Prompt rows that cost W together, in M steps of equal time that each cost a beside their rows,
are through K stages after (M + K-1) (a + W/M); that is least for M = sqrt((K-1) W / a). Equal in time, not in rows:
through stages that are alike, steps take as long as all of them at one stage and the longest once more for each
other stage, and a row costs more the more it sees (`chunk_cost`). So what is left to send is divided anew for each
step. With one stage the whole step is used. A step is kept below STEP_US, so that who comes next does not wait long,
nor ever for a step past its deadline.

Knows no clock, no sequence and no page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from coordinator.scheduling.average import Average
from coordinator.scheduling.chunk_cost import Chunk, ChunkCost, Cost
from layerline.frames import StageTiming

GAP_GROWTH = 2.0  # of the 2.5 that an answer's gaps may grow; the rest is for what varies
LEAST_ROWS = 4  # a prompt goes on by as many, whatever a row costs
FIRST_ROWS = 64  # before so many have told what a row costs; 512 could take minutes on a slow machine
LEAP = 4  # times the most rows that a step ever had: what fewer rows tell of many is not to be relied on
FIRST_ROWS_BESIDE_DECODES = 16
WHOLE_ROWS = 16  # chunks of prompts alone are a multiple of this, as matrix kernels like it
UNKNOWN_FIXED_ROWS = 16.0  # a / b before it is known
LEAST_FIXED_ROWS = 4.0  # for what a step costs beside its computing
UNEVEN = 0.25  # of a step: what the last one may be longer rather than make one more
STALE_STEPS = 64  # the least between two measurements for their own sake
STALE_ROWS_RATIO = 1.5
OLD_STEPS = 1024  # the most between two measurements
STEP_US = 1_000_000


class Pace:
    """The sizes of chunks. `steps` is always how many steps with decode rows are to be in flight."""

    def __init__(self) -> None:
        self._decode_us = Average()  # of a step without prompt rows, at the slowest stage
        self._decode_way_us = Average()  # of the same, at all stages together
        self._decode_rows = Average()  # of the same
        self._added_us = Average()  # by the prompt rows of a step, at the slowest stage
        self._added_rows = Average()
        self._chunk_cost = ChunkCost()
        self._proven_rows = 0  # that a step lately had; more than twice as many would be a leap in the dark
        self._largest_rows = 0  # that any step had
        self._since_decode = 0  # steps with both kinds of rows since one without prompt rows

    def learn(self, timings: Sequence[StageTiming], *, decode_rows: int, prompt: Chunk) -> None:
        """Takes in the times of a step that has come back."""
        if not timings:
            return
        times_us = [timing.compute_us for timing in timings]
        if prompt.rows == 0:
            self._chunk_cost.bound(max(times_us))
            self._decode_us.add(max(times_us))
            self._decode_way_us.add(sum(times_us))
            self._decode_rows.add(decode_rows)
            self._since_decode = 0
            return
        if decode_rows == 0:
            self._chunk_cost.learn(prompt, max(times_us))
        self._added_us.add(max(times_us) - self._decode_us.value)
        self._added_rows.add(prompt.rows)
        self._proven_rows = max(prompt.rows, self._proven_rows // 2)
        self._largest_rows = max(prompt.rows, self._largest_rows)
        self._since_decode += decode_rows > 0

    def rows_beside_decodes(self, decoding: int, steps: int) -> int:
        """The most prompt rows of a step while `decoding` sequences decode and `steps` steps are in flight."""
        if self._is_stale(decoding / min(decoding, steps)):
            return 0
        row_us = self._row_us()
        if not row_us or not self._decode_us.value:
            return FIRST_ROWS_BESIDE_DECODES
        round_us = max(self._decode_way_us.value, min(decoding, steps) * self._decode_us.value)
        rows = (GAP_GROWTH * round_us / steps - self._decode_us.value) / row_us
        return max(LEAST_ROWS, int(min(rows, 2 * self._proven_rows)))

    def rows_alone(self, whole: Chunk, left: Chunk, start: int, steps: int) -> int:
        """The best prompt rows of a step while nobody decodes.

        `whole` is what is to be prefilled in all, `left` what of it has not been sent, `start` the position of the next
        row of the oldest prompt.
        """
        cost = self._cost()
        if cost is None or self._largest_rows < FIRST_ROWS:
            return FIRST_ROWS
        step_us, steps_left = float(STEP_US), math.inf
        if steps > 1:
            step_us = min(step_us, math.sqrt(cost.rows_us(whole) * cost.step_us / (steps - 1)))
            steps_left = max(1, math.ceil(cost.rows_us(left) / step_us - UNEVEN))
            step_us = cost.rows_us(left) / steps_left
        rows = max(1, int(cost.rows_within(step_us, start) / WHOLE_ROWS + 0.5)) * WHOLE_ROWS
        return min(left.rows if steps_left == 1 else rows, LEAP * self._largest_rows)

    def _cost(self) -> Cost | None:
        """What a step of prompt rows costs; of equal steps, what a decode step costs stands for what any costs."""
        cost, row_us = self._chunk_cost.cost, self._row_us()
        if cost is None and row_us:
            cost = Cost(self._decode_us.value or UNKNOWN_FIXED_ROWS * row_us, row_us)
        return cost and replace(cost, step_us=max(cost.step_us, LEAST_FIXED_ROWS * cost.row_us))

    def _is_stale(self, decode_rows: float) -> bool:
        """Whether the time of a decode step is to be measured anew, now that such have `decode_rows`."""
        if self._since_decode < STALE_STEPS:
            return False
        ratio = decode_rows / max(1.0, self._decode_rows.value)
        return not 1 / STALE_ROWS_RATIO < ratio < STALE_ROWS_RATIO or self._since_decode >= OLD_STEPS

    def _row_us(self) -> float:
        """What a prompt row adds to a step at the slowest stage; 0 if that is not known."""
        if not self._added_rows.value:
            return 0.0
        return max(self._added_us.value / self._added_rows.value, 1e-3)
