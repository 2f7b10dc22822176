"""Counts durations by their logarithm: any number in little memory, with percentiles right to within 5 %."""

from __future__ import annotations

import math

from layerline.stats_report import DurationStats

GROWTH = 1.1  # from one class to the next; its middle is less than 5 % away from any member
_LOG_GROWTH = math.log(GROWTH)


class Distribution:
    """Durations in microseconds. Those up to a day fall into some 265 classes, which bounds the memory.

    Written for speed, because several distributions take in a duration with every step and token.
    """

    __slots__ = ("_classes", "count", "largest_us", "least_us", "total_us")

    def __init__(self) -> None:
        self.count = 0
        self.total_us = 0.0
        self.least_us = math.inf
        self.largest_us = 0.0
        self._classes: dict[int, int] = {}

    def add(self, duration_us: float) -> None:
        """Takes in a duration; below a microsecond all are of one class."""
        self.count += 1
        self.total_us += duration_us
        if duration_us < self.least_us:
            self.least_us = duration_us
        if duration_us > self.largest_us:
            self.largest_us = duration_us
        number = int(math.log(duration_us) / _LOG_GROWTH) if duration_us >= 1 else -1
        self._classes[number] = self._classes.get(number, 0) + 1

    def merge(self, other: Distribution) -> None:
        """Takes in the durations of `other`."""
        self.count += other.count
        self.total_us += other.total_us
        self.least_us = min(self.least_us, other.least_us)
        self.largest_us = max(self.largest_us, other.largest_us)
        for number, count in other._classes.items():
            self._classes[number] = self._classes.get(number, 0) + count

    @property
    def mean_us(self) -> float:
        """The mean of the durations; 0 if there is none."""
        return self.total_us / self.count if self.count else 0.0

    def quantile_us(self, share: float) -> float:
        """The duration that `share` of all do not exceed; 0 if there is none."""
        if not self.count:
            return 0.0
        rank, seen = max(1, math.ceil(share * self.count)), 0
        for number in sorted(self._classes):
            seen += self._classes[number]
            if seen >= rank:
                break
        middle_us = GROWTH ** (number + 0.5) if number >= 0 else 0.0
        return min(max(middle_us, self.least_us), self.largest_us)

    def stats(self) -> DurationStats:
        """The figures of the durations that are reported."""
        return DurationStats(
            count=self.count,
            total_s=self.total_us / 1e6,
            mean_s=self.mean_us / 1e6,
            p50_s=self.quantile_us(0.5) / 1e6,
            p99_s=self.quantile_us(0.99) / 1e6,
        )
