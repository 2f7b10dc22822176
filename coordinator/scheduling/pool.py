"""Numbered things of which a pool has so many: which are free, which are cached, and how many owners the others have.

A thing is **owned** by one sequence or more, else **cached** if the tree of prefixes keeps it, else **free**. Knows not
what is numbered: pages are (`pages`), and so are slots of recurrent state (`slots`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from coordinator.scheduling.free_runs import FreeRuns
from layerline.frames import PageRun


class Pool:
    """The numbers 0 to `size` - 1 of one kind of thing, which is called `noun` in assertions."""

    def __init__(self, size: int, noun: str) -> None:
        self.size = size
        self.cached = 0
        self._noun = noun
        self._free = FreeRuns(size)
        self._owners = array("I", bytes(4 * size))
        self._kept = bytearray(size)

    @property
    def free(self) -> int:
        """How many hold nothing."""
        return self._free.pages

    @property
    def used(self) -> int:
        """How many have an owner."""
        return self.size - self.free - self.cached

    def keep(self, numbers: Iterable[int]) -> None:
        """Keeps owned ones, so that they are cached, and not free, once they have no owner."""
        for number in numbers:
            assert self._owners[number] > 0, f"{self._noun} {number} has no owner and cannot be kept"
            assert not self._kept[number], f"{self._noun} {number} is kept already"
            self._kept[number] = True

    def drop(self, numbers: Iterable[int]) -> None:
        """Keeps `numbers` no longer; those without an owner are free."""
        freed: list[int] = []
        for number in numbers:
            assert self._kept[number], f"{self._noun} {number} is dropped but not kept"
            if self.is_cached(number):
                self.cached -= 1
                freed.append(number)
            self._kept[number] = False
        self._free_all(freed)

    def is_cached(self, number: int) -> bool:
        """Whether it is kept and has no owner."""
        return self._owners[number] == 0 and bool(self._kept[number])

    def owners(self, number: int) -> int:
        """The number of sequences that own it."""
        return self._owners[number]

    def is_kept(self, number: int) -> bool:
        """Whether it would be cached without an owner."""
        return bool(self._kept[number])

    def check(self) -> None:
        """Raises AssertionError unless each is free, cached or owned, and counted as such."""
        free = [number for run in self._free.runs() for number in range(run.first, run.first + run.count)]
        assert free == [number for number in range(self.size) if self._owners[number] == 0 and not self._kept[number]]
        assert len(free) == self.free
        assert self.cached == sum(self.is_cached(number) for number in range(self.size))

    def _own_anew(self, numbers: Iterable[int]) -> None:
        """Gives those just taken from the free ones their first owner."""
        for number in numbers:
            self._owners[number] = 1

    def _add_owner(self, numbers: Iterable[int]) -> None:
        """Adds an owner to each, which must be owned or cached."""
        for number in numbers:
            is_held = self._owners[number] > 0 or self._kept[number]
            assert is_held, f"{self._noun} {number} is free and cannot be shared"
            self.cached -= self.is_cached(number)
            self._owners[number] += 1

    def _remove_owner(self, numbers: Iterable[int]) -> None:
        """Removes an owner of each; one without any is cached if it is kept, else free."""
        freed: list[int] = []
        for number in numbers:
            assert self._owners[number] > 0, f"{self._noun} {number} is released but has no owner"
            self._owners[number] -= 1
            if self.is_cached(number):
                self.cached += 1
            elif self._owners[number] == 0:
                freed.append(number)
        self._free_all(freed)

    def _free_all(self, numbers: Iterable[int]) -> None:
        for run in runs_of(numbers):
            self._free.add(run)


def runs_of(numbers: Iterable[int]) -> tuple[PageRun, ...]:
    """`numbers` in their order, neighbours made one run."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1]:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return tuple(PageRun(first=first, count=end - first) for first, end in runs)
