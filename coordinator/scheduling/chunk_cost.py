"""Fits the cost of a step of prompt rows alone: a fixed part and a part for each row.

The time of a step is taken to be a straight line over its rows, fixed_us + rows * row_us: reading the weights is paid
once, computing for each row. The line is fitted by least squares; a step counts less with every one that follows.
Knows no stage and no sequence.
"""

from __future__ import annotations

FADING = 0.97  # of what a step counts, with each that follows
LEAST_SPREAD = 0.1  # of the sizes, over their mean: of equal steps no line can be drawn


class ChunkCost:
    """The line through the latest steps."""

    def __init__(self) -> None:
        self._steps = 0.0
        self._rows = 0.0
        self._us = 0.0
        self._rows_squared = 0.0
        self._rows_us = 0.0

    def learn(self, rows: int, us: float) -> None:
        """Takes in a step of `rows` prompt rows that took `us` at the slowest stage."""
        self._steps = FADING * self._steps + 1
        self._rows = FADING * self._rows + rows
        self._us = FADING * self._us + us
        self._rows_squared = FADING * self._rows_squared + rows * rows
        self._rows_us = FADING * self._rows_us + rows * us

    @property
    def fixed_rows(self) -> float | None:
        """The rows that cost as much as the fixed part; None while the steps were too much alike to tell."""
        if not self._steps:
            return None
        mean_rows, mean_us = self._rows / self._steps, self._us / self._steps
        variance = self._rows_squared / self._steps - mean_rows**2
        covariance = self._rows_us / self._steps - mean_rows * mean_us
        if variance < (LEAST_SPREAD * mean_rows) ** 2 or covariance <= 0:
            return None
        return max(0.0, mean_us * variance / covariance - mean_rows)
