"""How soon a place in the queue will be free: what is told to those who find it full.

A queue that is full moves by one when a request ends, and a pipeline that has such a queue is always busy. So
the time from one end to the next is the time that its slowest stage computes between them, which results tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from coordinator.scheduling.average import Average
from layerline.frames import StageTiming

LEAST_S = 1


class Turnover:
    """The time between the ends of requests, as an average."""

    def __init__(self) -> None:
        self._busy_us = 0
        self._between_ends_us = Average()

    def work(self, timings: Sequence[StageTiming]) -> None:
        """A step has come back."""
        self._busy_us += max((timing.compute_us for timing in timings), default=0)

    def end(self) -> None:
        """A request has ended."""
        self._between_ends_us.add(self._busy_us)
        self._busy_us = 0

    @property
    def retry_after_s(self) -> int:
        """Whole seconds until a place is likely to be free, at least LEAST_S."""
        return max(LEAST_S, math.ceil(self._between_ends_us.value / 1e6))
