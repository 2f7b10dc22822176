"""The free pages of a pool as runs of neighbours. Knows nothing of sequences or owners."""

from __future__ import annotations

from bisect import bisect_left, insort

from layerline.frames import PageRun


class FreeRuns:
    """Runs of neighbouring free pages, never two that touch.

    `add` joins neighbours in O(1); `take_best` finds the best fit by bisection. An insertion moves the rest of a list
    of (count, first), which is a short copy of memory for the thousands of runs that a pool can have.
    """

    def __init__(self, pages: int) -> None:
        self.pages = 0  # free in all
        self._count_by_first: dict[int, int] = {}
        self._first_by_end: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []
        self.add(PageRun(first=0, count=pages))

    def add(self, run: PageRun) -> None:
        """Adds a run of pages that are not free yet."""
        first, end = run.first, run.first + run.count
        before = self._first_by_end.get(first)
        if before is not None:
            self._remove(before)
            first = before
        if end in self._count_by_first:
            end += self._remove(end)
        self._insert(first, end - first)

    def take_at(self, first: int, count: int) -> PageRun | None:
        """Takes up to `count` pages from page `first` on; None if no free run begins there."""
        if first not in self._count_by_first:
            return None
        return self._take_from(first, count)

    def take_best(self, count: int) -> PageRun | None:
        """Takes `count` pages of the smallest run that has them, else all of the largest; None if no page is free."""
        if not self._by_size:
            return None
        index = min(bisect_left(self._by_size, (count, 0)), len(self._by_size) - 1)
        return self._take_from(self._by_size[index][1], count)

    def runs(self) -> tuple[PageRun, ...]:
        """Every free run, by page."""
        return tuple(PageRun(first=first, count=count) for first, count in sorted(self._count_by_first.items()))

    def _take_from(self, first: int, count: int) -> PageRun:
        size = self._remove(first)
        taken = min(size, count)
        if taken < size:
            self._insert(first + taken, size - taken)
        return PageRun(first=first, count=taken)

    def _insert(self, first: int, count: int) -> None:
        self._count_by_first[first] = count
        self._first_by_end[first + count] = first
        insort(self._by_size, (count, first))
        self.pages += count

    def _remove(self, first: int) -> int:
        count = self._count_by_first.pop(first)
        del self._first_by_end[first + count]
        del self._by_size[bisect_left(self._by_size, (count, first))]
        self.pages -= count
        return count
