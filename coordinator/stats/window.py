"""Keeps a tally for each second of the last minute, and one for all the time before it."""

from __future__ import annotations

from collections import deque

from coordinator.stats.tally import Tally

WINDOW_S = 60


class Window:
    """The tallies of a pipeline of `stages` stages since `began_s`. Times that are given must not go back."""

    def __init__(self, stages: int, began_s: float) -> None:
        self._stages = stages
        self._began_s = began_s
        self._older = Tally.of(stages)
        self._seconds: deque[tuple[int, Tally]] = deque()

    def now(self, now_s: float) -> Tally:
        """The tally of this second, to add to."""
        second = int(now_s)
        if not self._seconds or self._seconds[-1][0] != second:
            self._age(second)
            self._seconds.append((second, Tally.of(self._stages)))
        return self._seconds[-1][1]

    def recent(self, now_s: float) -> tuple[Tally, float]:
        """The tally of the last minute, or of all the time if that is less, and how many seconds that is."""
        self._age(int(now_s))
        first_s = max(self._began_s, int(now_s) - WINDOW_S + 1)
        return self._merged(), now_s - first_s

    def total(self, now_s: float) -> tuple[Tally, float]:
        """The tally of all the time, and how many seconds that is."""
        tally = self._merged()
        tally.merge(self._older)
        return tally, now_s - self._began_s

    def _merged(self) -> Tally:
        merged = Tally.of(self._stages)
        for _, tally in self._seconds:
            merged.merge(tally)
        return merged

    def _age(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - WINDOW_S:
            self._older.merge(self._seconds.popleft()[1])
