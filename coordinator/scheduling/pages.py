"""The pool of KV pages, and what is done with the runs in which they lie.

The coordinator has the only pool; the stages use the pages that frames name. A page is a number here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coordinator.scheduling.pool import Pool
from layerline.frames import PageRun


class PagePool(Pool):
    """`pages` pages of `page_tokens` positions each, given out in as few runs of neighbours as possible.

    Attention reads a run as one view of memory, so few runs are fast. A page may have several owners. When the last
    one has released it, it is free again, or cached if it is kept.
    """

    def __init__(self, pages: int, page_tokens: int) -> None:
        super().__init__(pages, "page")
        self.page_tokens = page_tokens

    @property
    def pages(self) -> int:
        """All pages."""
        return self.size

    @property
    def free_pages(self) -> int:
        """Pages that hold nothing."""
        return self.free

    @property
    def cached_pages(self) -> int:
        """Pages that are kept and have no owner."""
        return self.cached

    @property
    def used_pages(self) -> int:
        """Pages with an owner."""
        return self.used

    @property
    def tokens(self) -> int:
        """Positions that the whole pool holds."""
        return self.size * self.page_tokens

    def pages_for(self, tokens: int) -> int:
        """Pages that `tokens` positions take."""
        return -(-tokens // self.page_tokens)

    def extend(self, runs: tuple[PageRun, ...], pages: int) -> tuple[PageRun, ...]:
        """Takes `pages` free pages and returns `runs` with them at the end; the caller owns them. As many must be free.

        Pages that lie right behind the last run come first, then the smallest free run that holds the rest.
        """
        assert pages <= self.free, f"{pages} pages wanted, {self.free} free"
        extended = list(runs)
        while pages > 0:
            taken = self._take_next_to(extended, pages) or self._free.take_best(pages)
            assert taken is not None
            self._own_anew(_pages_of((taken,)))
            _append(extended, taken)
            pages -= taken.count
        return tuple(extended)

    def share(self, runs: Iterable[PageRun]) -> None:
        """Adds an owner to every page of `runs`, each of which must be owned or cached."""
        self._add_owner(_pages_of(runs))

    def release(self, runs: Iterable[PageRun]) -> None:
        """Removes an owner of every page of `runs`; a page without any is cached if it is kept, else free."""
        self._remove_owner(_pages_of(runs))

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


def pages_after(runs: tuple[PageRun, ...], pages: int) -> tuple[PageRun, ...]:
    """The runs of what comes after the first `pages` pages of `runs`."""
    tail: list[PageRun] = []
    for run in runs:
        skipped = min(pages, run.count)
        if skipped < run.count:
            tail.append(PageRun(first=run.first + skipped, count=run.count - skipped))
        pages -= skipped
    return tuple(tail)


def pages_between(runs: Iterable[PageRun], first: int, end: int) -> list[int]:
    """The numbers of the pages at places `first` to `end` (exclusive) of `runs`."""
    pages: list[int] = []
    for run in runs:
        pages.extend(range(run.first + max(0, first), run.first + max(0, min(run.count, end))))
        first, end = first - run.count, end - run.count
        if end <= 0:
            break
    return pages


def _append(runs: list[PageRun], run: PageRun) -> None:
    if runs and runs[-1].first + runs[-1].count == run.first:
        runs[-1] = PageRun(first=runs[-1].first, count=runs[-1].count + run.count)
    else:
        runs.append(run)


def _pages_of(runs: Iterable[PageRun]) -> Iterator[int]:
    return (page for run in runs for page in range(run.first, run.first + run.count))
