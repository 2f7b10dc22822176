"""Where the experts of a layer should be, so that the busiest rank has as little more to do than the others as can be.

A search from where they are, so that few of them move: again and again the busiest rank gives an expert away, gives one
in exchange for another, or another rank gets a copy of one, whichever helps most. Copies share the rows of their expert
evenly. Pure.

Source of the goal, few moves and copies of the busiest: DeepSeek, expert parallelism load balancer (2025).

Shapes: N experts, R ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerline.models.expert_placement import ExpertPlacement

MOST_CHANGES = 64
LEAST_GAIN = 1e-3  # of the mean load, for which an expert moves
TARGETS = 2  # ranks with the least to do that are tried first

Loads = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """What ranks can have: how many experts of a layer, and how much of the work is each one's due, 1 in all.

    Where experts lie beside the devices, the first `on_device` of each rank do not.
    """

    rooms: tuple[int, ...]
    dues: tuple[float, ...]
    most_coming: int  # experts that may come to a rank, or to its device, in one move
    on_device: int | None = None

    def busiest_over_mean(self, rank_rows: Sequence[float] | Loads) -> float:
        """How much more than its due the busiest rank has of these rows; 0 if there are none."""
        total = float(np.sum(rank_rows))
        return float(np.max(np.divide(rank_rows, self.dues))) / total if total else 0.0


def rows_of_ranks(placement: ExpertPlacement, rows_N: Sequence[float] | Loads) -> Loads:
    """How many of the rows of experts are each rank's where they are placed so."""
    shares_N = np.divide(rows_N, placement.copies(len(rows_N)))
    return np.array([shares_N[list(own)].sum() for own in placement.ranks])


def beside_share(placement: ExpertPlacement, rows_N: Sequence[float] | Loads, ranks: Ranks) -> float:
    """Which part of the rows of experts is computed beside the devices."""
    total, rows = float(np.sum(rows_N)), np.asarray(rows_N, np.float64)
    beside = sum(float(rows[list(own[ranks.on_device :])].sum()) for own in placement.ranks)
    return beside / total if total and ranks.on_device is not None else 0.0


def popular_placement(placement: ExpertPlacement, rows_N: Sequence[float] | Loads, ranks: Ranks) -> ExpertPlacement:
    """The same experts on the ranks, those with most rows on the devices, as far as so many may come in one move."""
    assert ranks.on_device is not None, "some lie beside the devices"
    return ExpertPlacement(
        tuple(_popular(list(own), rows_N, ranks.on_device, ranks.most_coming) for own in placement.ranks)
    )


def _popular(own: list[int], rows_N: Sequence[float] | Loads, on_device: int, most_coming: int) -> tuple[int, ...]:
    """One rank's, in their order."""
    for _ in range(most_coming if 0 < on_device < len(own) else 0):
        coming = max(range(on_device, len(own)), key=lambda place: rows_N[own[place]])
        leaving = min(range(on_device), key=lambda place: rows_N[own[place]])
        if rows_N[own[coming]] > rows_N[own[leaving]]:
            own[coming], own[leaving] = own[leaving], own[coming]
    return tuple(own)


def better_placement(placement: ExpertPlacement, rows_N: Sequence[float] | Loads, ranks: Ranks) -> ExpertPlacement:
    """Where experts with so many rows should be that are placed so; experts that stay keep their order."""
    state = _State.of(placement, rows_N, ranks)
    for _ in range(MOST_CHANGES):
        change = state.best_change()
        if change is None:
            break
        state = state.changed(change)
    return ExpertPlacement(tuple(map(tuple, state.own)))


@dataclass(frozen=True, slots=True)
class _Change:
    """An expert comes to a rank in place of another one, or of none; from the busiest, which then may get that one."""

    expert: int
    target: int
    leaves_source: bool
    displaced: int | None
    is_exchanged: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _State:
    own: tuple[tuple[int, ...], ...]
    before: tuple[frozenset[int], ...]  # what each rank had at first
    rows_N: Loads
    copies_N: NDArray[np.int64]
    loads_R: Loads  # each over its rank's due, so that all are 1 if they are even
    ranks: Ranks

    @classmethod
    def of(cls, placement: ExpertPlacement, rows_N: Sequence[float] | Loads, ranks: Ranks) -> _State:
        rows_N = np.asarray(rows_N, np.float64) / max(1.0, float(np.sum(rows_N)))
        loads_R = rows_of_ranks(placement, rows_N) / np.asarray(ranks.dues)
        before = tuple(map(frozenset, placement.ranks))
        copies_N = np.array(placement.copies(len(rows_N)))
        return cls(own=placement.ranks, before=before, rows_N=rows_N, copies_N=copies_N, loads_R=loads_R, ranks=ranks)

    def best_change(self) -> _Change | None:
        """The one that helps most, of those with the ranks that have least to do if any of these does."""
        order = np.argsort(self.loads_R, kind="stable")
        source = int(order[-1])
        for targets in (order[:TARGETS], order[TARGETS:]):
            found = [
                (self._merit(source, change), place, change)
                for place, change in enumerate(
                    change for target in targets if target != source for change in self._changes(source, int(target))
                )
            ]
            if found:
                merit, _, change = min(found)
                if merit < self._worth(self.loads_R) - LEAST_GAIN:
                    return change
        return None

    def changed(self, change: _Change) -> _State:
        """The state after it."""
        source = int(np.argmax(self.loads_R))
        own = [list(each) for each in self.own]
        if change.displaced is None:
            own[change.target].append(change.expert)
        else:
            own[change.target][own[change.target].index(change.displaced)] = change.expert
        if change.is_exchanged:
            assert change.displaced is not None
            own[source][own[source].index(change.expert)] = change.displaced
        elif change.leaves_source:
            own[source].remove(change.expert)
        after = ExpertPlacement(tuple(map(tuple, own)))
        loads_R = rows_of_ranks(after, self.rows_N) / np.asarray(self.ranks.dues)
        return _State(
            own=after.ranks,
            before=self.before,
            rows_N=self.rows_N,
            copies_N=np.array(after.copies(len(self.rows_N))),
            loads_R=loads_R,
            ranks=self.ranks,
        )

    def _changes(self, source: int, target: int) -> Iterator[_Change]:
        """What an expert of the busiest rank may do with another rank."""
        theirs = self.own[target]
        has_room = len(theirs) < self.ranks.rooms[target]
        redundant = [expert for expert in theirs if self.copies_N[expert] > 1]
        for expert in self.own[source]:
            if expert in theirs or not self._may_come(expert, target):
                continue
            for displaced in [None] if has_room else redundant:
                for leaves in (True, False):
                    yield _Change(expert, target, leaves, displaced, is_exchanged=False)
            for other in theirs:
                if other not in self.own[source] and self._may_come(other, source):
                    yield _Change(expert, target, True, other, is_exchanged=True)

    def _may_come(self, expert: int, rank: int) -> bool:
        """Whether an expert may come to a rank in this move, or has been there all the time."""
        coming = set(self.own[rank]) - self.before[rank]
        return expert in self.before[rank] or len(coming | {expert}) <= self.ranks.most_coming

    def _merit(self, source: int, change: _Change) -> float:
        """What the state is worth after it, the less the better."""
        loads_R = self.loads_R * np.asarray(self.ranks.dues)
        stays = not change.leaves_source and not change.is_exchanged
        self._move(loads_R, change.expert, came=change.target, left=None if stays else source)
        if change.displaced is not None:
            came = source if change.is_exchanged else None
            self._move(loads_R, change.displaced, came=came, left=change.target)
        return self._worth(loads_R / np.asarray(self.ranks.dues))

    def _move(self, loads_R: Loads, expert: int, *, came: int | None, left: int | None) -> None:
        """Changes loads as an expert comes to a rank and leaves one."""
        copies = int(self.copies_N[expert])
        before, after = (
            self.rows_N[expert] / copies,
            self.rows_N[expert] / (copies + (came is not None) - (left is not None)),
        )
        if after != before:
            for rank, own in enumerate(self.own):
                if expert in own:
                    loads_R[rank] += after - before
        if came is not None:
            loads_R[came] += after
        if left is not None:
            loads_R[left] -= after

    @staticmethod
    def _worth(loads_R: Loads) -> float:
        """The load of the busiest; of equals the evener is worth a little less."""
        return float(loads_R.max() + 0.05 * np.square(loads_R - 1.0).mean())
