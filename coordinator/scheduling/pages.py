"""The pool of KV pages: which are free, which are cached, and how many owners the others have.

The coordinator has the only pool; the stages use the pages that frames name. A page is a number here. It is **owned**
by one sequence or more, else **cached** if the tree of prefixes keeps it, else **free**.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from coordinator.scheduling.free_runs import FreeRuns
from layerline.frames import PageRun


class PagePool:
    """`pages` pages of `page_tokens` positions each, given out in as few runs of neighbours as possible.

    Attention reads a run as one view of memory, so few runs are fast. A page may have several owners. When the last
    one has released it, it is free again, or cached if it is kept.
    """

    def __init__(self, pages: int, page_tokens: int) -> None:
        self.pages = pages
        self.page_tokens = page_tokens
        self._free = FreeRuns(pages)
        self._owners = array("I", bytes(4 * pages))
        self._kept = bytearray(pages)
        self.cached_pages = 0

    @property
    def free_pages(self) -> int:
        """Pages that hold nothing."""
        return self._free.pages

    @property
    def used_pages(self) -> int:
        """Pages with an owner."""
        return self.pages - self.free_pages - self.cached_pages

    @property
    def tokens(self) -> int:
        """Positions that the whole pool holds."""
        return self.pages * self.page_tokens

    def pages_for(self, tokens: int) -> int:
        """Pages that `tokens` positions take."""
        return -(-tokens // self.page_tokens)

    def extend(self, runs: tuple[PageRun, ...], pages: int) -> tuple[PageRun, ...]:
        """Takes `pages` free pages and returns `runs` with them at the end; the caller owns them. As many must be free.

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
        """Adds an owner to every page of `runs`, each of which must be owned or cached."""
        for page in _pages_of(runs):
            assert self._owners[page] > 0 or self._kept[page], f"page {page} is free and cannot be shared"
            self.cached_pages -= self.is_cached(page)
            self._owners[page] += 1

    def release(self, runs: Iterable[PageRun]) -> None:
        """Removes an owner of every page of `runs`; a page without any is cached if it is kept, else free."""
        freed: list[int] = []
        for page in _pages_of(runs):
            assert self._owners[page] > 0, f"page {page} is released but has no owner"
            self._owners[page] -= 1
            if self.is_cached(page):
                self.cached_pages += 1
            elif self._owners[page] == 0:
                freed.append(page)
        self._free_all(freed)

    def keep(self, pages: Iterable[int]) -> None:
        """Keeps owned `pages`, so that they are cached, and not free, once they have no owner."""
        for page in pages:
            assert self._owners[page] > 0, f"page {page} has no owner and cannot be kept"
            assert not self._kept[page], f"page {page} is kept already"
            self._kept[page] = True

    def drop(self, pages: Iterable[int]) -> None:
        """Keeps `pages` no longer; those without an owner are free."""
        freed: list[int] = []
        for page in pages:
            assert self._kept[page], f"page {page} is dropped but not kept"
            if self.is_cached(page):
                self.cached_pages -= 1
                freed.append(page)
            self._kept[page] = False
        self._free_all(freed)

    def is_cached(self, page: int) -> bool:
        """Whether the page is kept and has no owner."""
        return self._owners[page] == 0 and bool(self._kept[page])

    def owners(self, page: int) -> int:
        """The number of sequences that own the page."""
        return self._owners[page]

    def is_kept(self, page: int) -> bool:
        """Whether the page would be cached without an owner."""
        return bool(self._kept[page])

    def check(self) -> None:
        """Raises AssertionError unless every page is free, cached or owned, and counted as such."""
        free = [page for run in self._free.runs() for page in range(run.first, run.first + run.count)]
        assert free == [page for page in range(self.pages) if self._owners[page] == 0 and not self._kept[page]]
        assert len(free) == self.free_pages
        assert self.cached_pages == sum(self.is_cached(page) for page in range(self.pages))

    def _free_all(self, pages: Iterable[int]) -> None:
        for run in runs_of(pages):
            self._free.add(run)

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


def runs_of(pages: Iterable[int]) -> tuple[PageRun, ...]:
    """`pages` in their order, neighbours made one run."""
    runs: list[tuple[int, int]] = []
    for page in pages:
        if runs and page == runs[-1][1]:
            runs[-1] = (runs[-1][0], page + 1)
        else:
            runs.append((page, page + 1))
    return tuple(PageRun(first=first, count=end - first) for first, end in runs)


def _append(runs: list[PageRun], run: PageRun) -> None:
    if runs and runs[-1].first + runs[-1].count == run.first:
        runs[-1] = PageRun(first=runs[-1].first, count=runs[-1].count + run.count)
    else:
        runs.append(run)


def _pages_of(runs: Iterable[PageRun]) -> Iterator[int]:
    return (page for run in runs for page in range(run.first, run.first + run.count))
