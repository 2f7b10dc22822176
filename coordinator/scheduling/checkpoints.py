"""The checkpoints of the tree of prefixes: recurrent state that sequences have left at the ends of pages.

A checkpoint is a slot that holds the state after all tokens up to the end of a page. As states cannot be cut short, a
sequence can go on from a prefix only where there is one. Owns which slots the tree keeps, where in it, and which of
them was used last.
"""

from __future__ import annotations

from collections import OrderedDict

from coordinator.scheduling.branch import Branch
from coordinator.scheduling.slots import SlotPool


class Checkpoints:
    """The checkpoints of one tree in the slots of `pool`.

    Uses are counted; `uses` is the number of the last one. What is evicted is the least recently used one without an
    owner.
    """

    def __init__(self, pool: SlotPool) -> None:
        self.pool = pool
        self.uses = 0
        self._used: OrderedDict[int, int] = OrderedDict()  # by slot, least recently used first: the use
        self._branches: dict[int, Branch] = {}  # by slot

    def add(self, branch: Branch, place: int, slot: int) -> bool:
        """Keeps an owned slot as the state at the end of that page; False if the tree has that state already."""
        if place in branch.states:
            return False
        branch.states[place] = slot
        self.pool.keep((slot,))
        self._branches[slot] = branch
        self.use(slot)
        return True

    def use(self, slot: int) -> None:
        """Counts a use of a checkpoint."""
        self.uses += 1
        self._used[slot] = self.uses
        self._used.move_to_end(slot)

    def evict(self, used_before: int | None = None) -> bool:
        """Frees a slot; False if none is cached, or all that are have been used since use number `used_before`."""
        slot = next(filter(self.pool.is_cached, self._used), None)
        if slot is None or (used_before is not None and self._used[slot] > used_before):
            return False
        branch = self._branches[slot]
        self._forget(branch, next(place for place, kept in branch.states.items() if kept == slot))
        return True

    def split(self, branch: Branch, upper: Branch, count: int) -> None:
        """Takes in that the first `count` pages of `branch` are now those of `upper`."""
        states, branch.states = branch.states, {}
        for place, slot in states.items():
            owner = upper if place < count else branch
            owner.states[place if place < count else place - count] = slot
            self._branches[slot] = owner

    def drop(self, branch: Branch, places: range) -> None:
        """Forgets those at the ends of these pages of `branch`, and at as many behind it as it has too few pages."""
        for place in [place for place in branch.states if place in places]:
            self._forget(branch, place)
        if places.stop > len(branch.pages):
            for child in branch.children.values():
                self.drop(child, range(max(0, places.start - len(branch.pages)), places.stop - len(branch.pages)))

    def clear(self) -> None:
        """Forgets all of them, because what the slots held is lost."""
        self.pool.drop(self._used)
        self._used.clear()
        self._branches.clear()

    def check(self) -> None:
        """Raises AssertionError unless the slots that are kept are those that branches name."""
        assert sorted(self._used) == [slot for slot in range(self.pool.size) if self.pool.is_kept(slot)]
        assert self._used.keys() == self._branches.keys()
        assert all(slot in branch.states.values() for slot, branch in self._branches.items())
        assert all(branch.pages[place] is not None for branch in self._branches.values() for place in branch.states)
        assert sum(len(branch.states) for branch in set(self._branches.values())) == len(self._used)

    def _forget(self, branch: Branch, place: int) -> None:
        slot = branch.states.pop(place)
        del self._used[slot], self._branches[slot]
        self.pool.drop((slot,))
