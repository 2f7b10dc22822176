"""The page pool: which KV pages are free, and how many owners the others have.

The coordinator's pool is the only one; the stages use the pages they are told to. Pages are numbers here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from coordinator.scheduling.free_runs import FreeRuns
from layerline.frames import PageRun


class PagePool:
    """`pages` pages of `page_tokens` positions, given out in as few neighbouring runs as there can be.

    Attention reads a run as one view of memory, so few runs are fast. A page may have several owners and is
    free again when the last one has released it.
    """

    def __init__(self, pages: int, page_tokens: int) -> None:
        self.pages = pages
        self.page_tokens = page_tokens
        self._free = FreeRuns(pages)
        self._owners = array("I", bytes(4 * pages))

    @property
    def free_pages(self) -> int:
        """Pages without an owner."""
        return self._free.pages

    @property
    def tokens(self) -> int:
        """Positions that the whole pool holds."""
        return self.pages * self.page_tokens

    def pages_for(self, tokens: int) -> int:
        """Pages that `tokens` positions take."""
        return -(-tokens // self.page_tokens)

    def extend(self, runs: tuple[PageRun, ...], pages: int) -> tuple[PageRun, ...]:
        """`runs` with `pages` more behind them, which the caller then owns; the pool must have as many free.

        Pages that lie right behind the last run come first, then the smallest free run that holds the rest.
        """
        assert pages <= self.free_pages, f"{pages} pages wanted, {self.free_pages} free"
        extended = list(runs)
        while pages > 0:
            taken = self._take_next_to(extended, pages) or self._free.take_best(pages)
            assert taken is not None
            for page in _pages_of((taken,)):
                self._owners[page] = 1
            _append(extended, taken)
            pages -= taken.count
        return tuple(extended)

    def share(self, runs: Iterable[PageRun]) -> None:
        """One more owner for every page of `runs`."""
        for page in _pages_of(runs):
            assert self._owners[page] > 0, f"page {page} is free and cannot be shared"
            self._owners[page] += 1

    def release(self, runs: Iterable[PageRun]) -> None:
        """One owner less for every page of `runs`; pages without any are free again."""
        freed: list[PageRun] = []
        for page in _pages_of(runs):
            assert self._owners[page] > 0, f"page {page} is released but has no owner"
            self._owners[page] -= 1
            if self._owners[page] == 0:
                _append(freed, PageRun(first=page, count=1))
        for run in freed:
            self._free.add(run)

    def check(self) -> None:
        """Raises AssertionError unless a page is free exactly if it has no owner."""
        free = [page for run in self._free.runs() for page in range(run.first, run.first + run.count)]
        assert free == [page for page, owners in enumerate(self._owners) if owners == 0]
        assert len(free) == self.free_pages

    def _take_next_to(self, runs: list[PageRun], pages: int) -> PageRun | None:
        return self._free.take_at(runs[-1].first + runs[-1].count, pages) if runs else None


def count_pages(runs: Iterable[PageRun]) -> int:
    """Pages of all runs together."""
    return sum(run.count for run in runs)


def first_pages(runs: tuple[PageRun, ...], pages: int) -> tuple[PageRun, ...]:
    """The runs of the first `pages` pages of `runs`."""
    head: list[PageRun] = []
    for run in runs:
        if pages <= 0:
            break
        head.append(run if run.count <= pages else PageRun(first=run.first, count=pages))
        pages -= run.count
    return tuple(head)


def _append(runs: list[PageRun], run: PageRun) -> None:
    if runs and runs[-1].first + runs[-1].count == run.first:
        runs[-1] = PageRun(first=runs[-1].first, count=runs[-1].count + run.count)
    else:
        runs.append(run)


def _pages_of(runs: Iterable[PageRun]) -> Iterator[int]:
    return (page for run in runs for page in range(run.first, run.first + run.count))
