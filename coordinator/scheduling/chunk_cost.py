"""What a step of prompt rows alone costs: something whatever it carries, something a row, something for what rows see.

Reading the weights is paid once a step, multiplying by them for each row, and attention for each position that a row
looks back to, so that a chunk late in a long prompt takes longer than one of as many rows early in it. The three
are found by least squares over the steps seen lately.

Steps of one size say nothing of what is paid once, nor do steps that were sized to take equally long. So what is paid
once never counts as more than the fastest step ever took, and as just that where the steps do not tell.

Knows no stage and no sequence.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KEPT_STEPS = 64
LEAST_SPREAD = 0.1  # of the sizes, over their mean: of equal steps no line can be drawn
LEAST_ROW_US = 1e-3  # under that it is noise


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prompt rows, of one prompt or of several; `seen` are the positions before them, over all rows."""

    rows: int = 0
    seen: int = 0

    @classmethod
    def of(cls, start: int, rows: int) -> Chunk:
        """The `rows` rows of one prompt from position `start` on."""
        return cls(rows, rows * start + rows * (rows - 1) // 2)

    @classmethod
    def joined(cls, chunks: Iterable[Chunk]) -> Chunk:
        """All of them together."""
        listed = tuple(chunks)
        return cls(sum(chunk.rows for chunk in listed), sum(chunk.seen for chunk in listed))


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of a step, of each of its rows, and of each position that a row sees."""

    step_us: float
    row_us: float
    seen_us: float = 0.0

    def rows_us(self, chunk: Chunk) -> float:
        """What the rows add to a step."""
        return self.row_us * chunk.rows + self.seen_us * chunk.seen

    def rows_within(self, us: float, start: int) -> float:
        """How many rows from position `start` on add that much to a step."""
        first_us = self.row_us + self.seen_us * start
        # us = first_us rows + seen_us rows² / 2, solved without a difference of like numbers
        return 2 * us / (first_us + math.sqrt(first_us**2 + 2 * self.seen_us * us))


class ChunkCost:
    """The cost that fits the steps seen lately."""

    def __init__(self) -> None:
        self._steps: deque[tuple[Chunk, float]] = deque(maxlen=KEPT_STEPS)
        self._least_us = math.inf

    def bound(self, us: float) -> None:
        """A step, of whatever rows, took that long at the slowest stage."""
        self._least_us = min(us, self._least_us)

    def learn(self, chunk: Chunk, us: float) -> None:
        """Takes in a step of these prompt rows alone."""
        self.bound(us)
        self._steps.append((chunk, us))

    @property
    def cost(self) -> Cost | None:
        """None while the steps do not tell what a row costs."""
        if not self._steps:
            return None
        rows = np.array([chunk.rows for chunk, _ in self._steps], dtype=np.float64)
        seen = np.array([chunk.seen for chunk, _ in self._steps], dtype=np.float64)
        times_us = np.array([us for _, us in self._steps])
        once = np.ones_like(rows)
        if rows.std() >= LEAST_SPREAD * rows.mean():
            for columns in ([once, rows, seen], [once, rows]):
                step_us, row_us, *seen_us = _fitted(columns, times_us)
                if 0 <= step_us <= self._least_us and row_us >= LEAST_ROW_US and min(seen_us, default=0) >= 0:
                    return Cost(step_us, row_us, *seen_us)
        for columns in ([rows, seen], [rows]):
            row_us, *seen_us = _fitted(columns, times_us - self._least_us)
            if row_us >= LEAST_ROW_US and min(seen_us, default=0) >= 0:
                return Cost(self._least_us, row_us, *seen_us)
        return None


def _fitted(columns: Sequence[NDArray[np.float64]], times_us: NDArray[np.float64]) -> list[float]:
    """What each column counts, by least squares; of columns that say the same the smallest numbers."""
    scales = [column.max() or 1.0 for column in columns]
    matrix = np.column_stack([column / scale for column, scale in zip(columns, scales, strict=True)])
    found = np.linalg.lstsq(matrix, times_us, rcond=None)[0]
    return [float(number / scale) for number, scale in zip(found, scales, strict=True)]
