"""Estimates when a place in a full queue will be free, for those who are refused.

A full queue moves by one when a request ends, and a pipeline with such a queue is always busy. So the time from one end
to the next is the time that the slowest stage computes between them, which results tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from coordinator.scheduling.average import Average
from layerline.frames import StageTiming

LEAST_S = 1


class RetryEstimate:
    """Averages the time between the ends of requests."""

    def __init__(self) -> None:
        self._busy_us = 0
        self._between_ends_us = Average()

    def learn(self, timings: Sequence[StageTiming]) -> None:
        """Takes in the times of a step that has come back."""
        self._busy_us += max((timing.compute_us for timing in timings), default=0)

    def end_request(self) -> None:
        """Takes in that a request has ended."""
        self._between_ends_us.add(self._busy_us)
        self._busy_us = 0

    @property
    def retry_after_s(self) -> int:
        """Whole seconds until a place is likely to be free, at least LEAST_S."""
        return max(LEAST_S, math.ceil(self._between_ends_us.value / 1e6))
