"""Slots of recurrent state for spans that a test makes: every so often, and at the end of a span, a state is left."""

from __future__ import annotations

from layerline.frames import StateRun

BORDER_TOKENS = 16  # a state is left behind wherever a sequence comes to a multiple of it


class SlotBook:
    """So many slots, of which the ones that were written longest ago are taken for new states."""

    def __init__(self, slots: int) -> None:
        self._slots: dict[int, tuple[int, int] | None] = dict.fromkeys(range(slots))  # by when they were written
        self._named: set[int] = set()  # in this step, by other sequences

    def step(self, *rows: tuple[int, int, int]) -> list[tuple[StateRun, ...]]:
        """The runs of each span of a step, which are told by (sequence, start, count)."""
        self._named.clear()
        return [self._runs(*own) for own in rows]

    def _runs(self, sequence: int, start: int, count: int) -> tuple[StateRun, ...]:
        """The runs of these rows, from the state that was left at `start`; none of a model without slots."""
        if not self._slots:
            return ()
        places = {place: slot for slot, place in self._slots.items() if place is not None}
        source = places[sequence, start] if start else None
        end = start + count
        ends = [*range(start // BORDER_TOKENS * BORDER_TOKENS + BORDER_TOKENS, end, BORDER_TOKENS), end]
        runs = []
        for last in ends:
            target = self._taken(sequence, last)
            runs.append(StateRun(count=last - start, source=source, target=target))
            start, source = last, target
        self._named.update(run.target for run in runs)
        self._named.update(run.source for run in runs if run.source is not None)
        return tuple(runs)

    def _taken(self, sequence: int, position: int) -> int:
        """A slot for that state: the one that it had, or the oldest that no other sequence is going to go on from."""
        places = {slot: place for slot, place in self._slots.items() if place is not None}
        reached = {own: slot for slot, (own, _) in places.items() if own != sequence}
        slot = next(slot for slot in self._slots if slot not in {*reached.values(), *self._named})
        slot = next((other for other, place in places.items() if place == (sequence, position)), slot)
        del self._slots[slot]
        self._slots[slot] = (sequence, position)
        return slot
