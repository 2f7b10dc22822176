"""The pool of slots, each of which holds the state of all recurrent layers after some tokens.

The coordinator has the only pool; the stages use the slots that frames name.
"""

from __future__ import annotations

from coordinator.scheduling.pool import Pool


class SlotPool(Pool):
    """`slots` slots. One that a checkpoint of the tree lies in may have several owners, all of which only read it."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots, "slot")

    def take(self) -> int | None:
        """A slot that was free, which the caller now owns; None if none is."""
        run = self._free.take_best(1)
        if run is None:
            return None
        self._own_anew((run.first,))
        return run.first

    def share(self, slot: int) -> None:
        """Adds an owner to a slot, which must be owned or cached."""
        self._add_owner((slot,))

    def release(self, slot: int) -> None:
        """Removes an owner of a slot, which is then cached if it is kept, else free, if it has no other."""
        self._remove_owner((slot,))
