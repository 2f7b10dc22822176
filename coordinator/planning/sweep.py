"""The fastest way through all layers with stages of bounded time: a dynamic program over nodes and layers.

A sweep goes over the nodes in one order and lets each take layers or none, next to those of the nodes before it. It
has a row for each node that may have the outermost stage, as that node can have no other. One sweep begins at the
first layer, a second over the nodes the other way round at the last; where they meet, every pair of an earlier node
with the first stage and a later one with the last has its fastest way. Sweeps over the reversed list find the others.

Times are doubled so often that below a tick there is room to break ties: of equally fast ways the one over earlier
nodes, and of those the one in order of nodes.

Shapes: P positions, the number of layers that are placed; R rows; K powers of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from coordinator.planning.footprint import FIRST, LAST, MIDDLE, Ends
from coordinator.planning.offer import LayerRange, Offer, Positions, Ticks

TIE_BITS = 13
_TIES = {FIRST: 3, MIDDLE: 2, LAST: 1}  # how much later nodes are avoided for such a stage
_UNREACHED = 1 << 60

Nodes = Sequence[Sequence[Offer]]
"""For each node what it offers, of which it does one thing at most."""


class Sweeps:
    """The search over `nodes`, each of which offers something, where a hop takes `hop` ticks."""

    def __init__(self, nodes: Nodes, hop: int) -> None:
        self._nodes = nodes
        self._mirrored = [[offer.mirrored() for offer in offers] for offers in nodes]
        self._hop = hop

    def fastest_through(self, bound: int) -> tuple[LayerRange, ...] | None:
        """The fastest stages of at most `bound` ticks each over two or more nodes, or None."""
        front = [[_Move(offer, FIRST, self._hop, bound) for offer in offers] for offers in self._nodes]
        back = [[_Move(offer, LAST, self._hop, bound) for offer in offers] for offers in self._mirrored]
        upwards = range(len(self._nodes))
        meetings = (
            meeting
            for order in (upwards, upwards[::-1])
            for meeting in _meetings(_Sweep(front, order), _Sweep(back, order[::-1]))
        )
        best = min(meetings, key=lambda meeting: meeting.time, default=None)
        return self._ranges(best) if best and best.time < _UNREACHED else None

    def _ranges(self, meeting: _Meeting) -> tuple[LayerRange, ...]:
        layers = len(self._nodes[0][0].ticks_P) - 1
        front = meeting.front.traced(meeting.passed, meeting.placed, meeting.first)
        rest = meeting.back.traced(len(self._nodes) - 1 - meeting.passed, layers - meeting.placed, meeting.last)
        back = [step._replace(start=layers - step.stop, stop=layers - step.start) for step in reversed(rest)]
        return tuple(
            LayerRange(offer=self._nodes[step.node][step.place], ends=step.ends, start=step.start, stop=step.stop)
            for step in (*front, *back)
        )


class _Move:
    """What an offer does in a sweep whose outermost stages have the ends `outer`: stages of at most `bound` ticks."""

    def __init__(self, offer: Offer, outer: Ends, hop: int, bound: int) -> None:
        self.outer = outer
        outermost_P = ((offer.ticks_P + offer.fixed_ticks(outer) + hop) << TIE_BITS) + _TIES[outer] * offer.node
        self.outermost_P: Ticks = np.where(offer.starts_within(outer, bound) == 0, outermost_P, _UNREACHED)
        self.outermost_P[0] = _UNREACHED  # a stage has a layer
        self._times_P = offer.ticks_P << TIE_BITS
        self._hop = (hop << TIE_BITS) + _TIES[MIDDLE] * offer.node
        self._starts_P = offer.starts_within(MIDDLE, bound)
        self._window = _Window(self._starts_P)

    def next_to(self, before_PR: Ticks) -> Ticks:
        """The least times with one more stage, which begins where those of `before_PR` end."""
        times_P1 = self._times_P[:, None]
        after_PR: Ticks = self._window.least(before_PR - times_P1) + (times_P1 + self._hop)
        return after_PR

    def start_of(self, before_P: Ticks, stop: int, time: int) -> int | None:
        """Where the stage begins with which `time` is reached at `stop`; None if none does."""
        starts = range(int(self._starts_P[stop]), stop)
        spent = time - self._hop - int(self._times_P[stop])
        return next((start for start in starts if int(before_P[start]) - int(self._times_P[start]) == spent), None)


class _Window:
    """For each position, the least of the values from its start to before it: of two minima over powers of two."""

    def __init__(self, starts_P: Positions) -> None:
        positions_P = np.arange(len(starts_P))
        self._empty_P = starts_P == positions_P
        self._power_P = np.maximum(np.frexp(positions_P - starts_P)[1] - 1, 0)
        self._early_P = starts_P
        self._late_P = np.where(self._empty_P, positions_P, positions_P - (1 << self._power_P))

    def least(self, values_PR: Ticks) -> Ticks:
        """The minima; _UNREACHED where a window is empty."""
        minima_KPR = np.empty((int(self._power_P.max()) + 1, *values_PR.shape), dtype=np.int64)
        minima_KPR[0] = values_PR
        for power in range(1, len(minima_KPR)):
            half, shorter_PR = 1 << (power - 1), minima_KPR[power - 1]
            np.minimum(shorter_PR[:-half], shorter_PR[half:], out=minima_KPR[power, :-half])
        early_PR, late_PR = minima_KPR[self._power_P, self._early_P], minima_KPR[self._power_P, self._late_P]
        least_PR: Ticks = np.minimum(early_PR, late_PR)
        least_PR[self._empty_P] = _UNREACHED
        return least_PR


class _Step(NamedTuple):
    """A stage of a sweep: what the node at a place among the nodes does, by its place among what it offers."""

    node: int
    place: int
    ends: Ends
    start: int
    stop: int


class _Sweep:
    """`tables[k]` has the least time to each position after the first k nodes of `order`, for each outermost node."""

    def __init__(self, nodes: Sequence[Sequence[_Move]], order: Sequence[int]) -> None:
        self.order = order
        self._nodes = nodes
        self.tables = [np.stack([np.min([move.outermost_P for move in own], axis=0) for own in nodes], axis=1)]
        for node in order:
            self.tables.append(self._with_node(self.tables[-1], node))

    def _with_node(self, before_PR: Ticks, node: int) -> Ticks:
        after_PR = before_PR.copy()
        for move in self._nodes[node]:
            np.minimum(after_PR, move.next_to(before_PR), out=after_PR)
        after_PR[:, node] = before_PR[:, node]
        return after_PR

    def traced(self, passed: int, stop: int, outermost: int) -> list[_Step]:
        """The stages that lead to position `stop` after so many nodes, the outermost first."""
        steps = []
        for index in reversed(range(passed)):
            before_P, time = self.tables[index][:, outermost], int(self.tables[index + 1][stop, outermost])
            if time < before_P[stop]:
                node = self.order[index]
                starts = enumerate(move.start_of(before_P, stop, time) for move in self._nodes[node])
                place, start = next((place, start) for place, start in starts if start is not None)
                steps.append(_Step(node=node, place=place, ends=MIDDLE, start=start, stop=stop))
                stop = start
        moves, time = self._nodes[outermost], int(self.tables[0][stop, outermost])
        place = next(place for place, move in enumerate(moves) if int(move.outermost_P[stop]) == time)
        steps.append(_Step(node=outermost, place=place, ends=moves[place].outer, start=0, stop=stop))
        return steps[::-1]


class _Meeting(NamedTuple):
    """Two sweeps that meet at a position, the front one after so many nodes, the back one after those behind `last`."""

    time: int
    front: _Sweep
    back: _Sweep
    passed: int
    placed: int
    first: int
    last: int


def _meetings(front: _Sweep, back: _Sweep) -> Iterator[_Meeting]:
    """The best for each node that may have the last stage; the nodes before it in order may have the first."""
    order = front.order
    for passed in range(1, len(order)):
        last, firsts_R = order[passed], order[:passed]
        rest_P = back.tables[len(order) - 1 - passed][::-1, last]
        times_PR = front.tables[passed][:, firsts_R] + rest_P[:, None]
        placed, row = divmod(int(times_PR.argmin()), passed)
        yield _Meeting(int(times_PR[placed, row]), front, back, passed, placed, firsts_R[row], last)
