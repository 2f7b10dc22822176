"""How many layers each node takes: the search for the split that a token gets through fastest.

All layers cost the same, so a split is a number of layers for each node used, and which nodes have the first
and the last stage. What is minimised is the time of a token through all stages and hops (one stream) plus the time
of the longest stage (the rate under load).

For a bound on the longest stage, the fastest way through is found exactly by a dynamic program over nodes and layers.
The bound itself is searched by branch and bound: with a lower bound the way through can only get slower, so an
interval of bounds is not looked into once its best possible cost is no better than what is known.
The result is within TOLERANCE of the optimum. Times are whole picoseconds, so that ties are exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import NamedTuple

from coordinator.planning.footprint import FIRST, LAST, MIDDLE, Ends

TOLERANCE = 0.005
_ROLES = ((LAST, 2), (MIDDLE, 0), (FIRST, 1))  # each with its bit in the state of the dynamic program
_BOTH_ENDS = 3
_UNREACHED = 1 << 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """What one hand of a node would do: its time for a layer and for the output matrix, and its room."""

    node: int  # the node's place in the list
    hand: int  # the hand's place in the node
    layer_ps: int
    output_ps: int
    most_layers: dict[Ends, int]

    def fixed_ps(self, ends: Ends) -> int:
        """The time of a stage with those ends beside its layers."""
        return self.output_ps if ends.last else 0

    def is_no_worse_than(self, other: Offer) -> bool:
        """Whether nothing speaks for `other`."""
        faster = self.layer_ps <= other.layer_ps and self.output_ps <= other.output_ps
        return faster and all(self.most_layers[ends] >= most for ends, most in other.most_layers.items())

    def room(self, ends: Ends, bound_ps: int) -> int:
        """The most layers that fit and take no longer than `bound_ps`."""
        return min(self.most_layers[ends], max(0, bound_ps - self.fixed_ps(ends)) // self.layer_ps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The layers that a node takes."""

    offer: Offer
    ends: Ends
    layers: int

    @property
    def time_ps(self) -> int:
        """The time of a token in this stage."""
        return self.layers * self.offer.layer_ps + self.offer.fixed_ps(self.ends)


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """The shares in order of layers, with the cost of a token."""

    shares: tuple[Share, ...]
    hop_ps: int

    @property
    def through_ps(self) -> int:
        """The time of a token through all stages, and the hops between them and to and from the coordinator."""
        return sum(share.time_ps for share in self.shares) + self.hop_ps * (len(self.shares) + 1)

    @property
    def longest_ps(self) -> int:
        """The time of the longest stage."""
        return max(share.time_ps for share in self.shares)

    @property
    def cost_ps(self) -> int:
        """What is minimised."""
        return self.through_ps + self.longest_ps


def best_partition(nodes: Sequence[Sequence[Offer]], layers: int, hop_ps: int) -> Partition | None:
    """The best split of `layers` layers over two or more of `nodes` (a list of offers for each), or None."""
    best = _fastest_through(nodes, layers, hop_ps, _UNREACHED)
    if best is None:
        return None
    intervals = [_Interval(best.through_ps, 0, best.longest_ps - 1, best.through_ps)]
    while intervals:
        least_cost_ps, low, high, through_ps = heappop(intervals)
        if least_cost_ps >= best.cost_ps * (1 - TOLERANCE):
            break
        middle = (low + high) // 2
        if middle < high:
            heappush(intervals, _Interval(through_ps + middle + 1, middle + 1, high, through_ps))
        found = _fastest_through(nodes, layers, hop_ps, middle)
        if found is not None and found.longest_ps > low:
            heappush(intervals, _Interval(found.through_ps + low, low, found.longest_ps - 1, found.through_ps))
        best = min(best, found or best, key=lambda partition: partition.cost_ps)
    return _evened(best)


class _Interval(NamedTuple):
    """Bounds on the longest stage, and the least that any of them could cost."""

    least_cost_ps: int
    low_ps: int
    high_ps: int
    through_ps: int  # no bound up to `high_ps` lets a token through faster


class _Choice(NamedTuple):
    """How a cell of the table was reached: from which state and which number of placed layers, with which stage."""

    state: int
    start: int
    offer: Offer
    ends: Ends


def _fastest_through(nodes: Sequence[Sequence[Offer]], layers: int, hop_ps: int, bound_ps: int) -> Partition | None:
    """The fastest way of a token through stages of at most `bound_ps` each.

    The table holds, for each set of ends that are placed and each number of layers that are placed, the least time
    with the nodes seen so far.
    """
    table = [[_UNREACHED] * (layers + 1) for _ in range(_BOTH_ENDS + 1)]
    table[0][0] = 0
    history: list[dict[tuple[int, int], _Choice]] = []
    for offers in nodes:
        table, choices = _with_node(table, offers, hop_ps, bound_ps)
        history.append(choices)
    if table[_BOTH_ENDS][layers] == _UNREACHED:
        return None
    return Partition(shares=_traced(history, layers), hop_ps=hop_ps)


def _with_node(
    table: list[list[int]], offers: Sequence[Offer], hop_ps: int, bound_ps: int
) -> tuple[list[list[int]], dict[tuple[int, int], _Choice]]:
    """The table after one more node, which may be left out, and the choices where it is not."""
    wider = [list(row) for row in table]
    choices: dict[tuple[int, int], _Choice] = {}
    for offer in offers:
        for ends, bit in _ROLES:
            room = offer.room(ends, bound_ps)
            fixed_ps = offer.fixed_ps(ends) + hop_ps
            for state in range(_BOTH_ENDS + 1) if room else ():
                if state & bit:
                    continue
                row, target = table[state], wider[state | bit]
                for placed, start in _least_starts(row, room, offer.layer_ps):
                    time_ps = row[start] + (placed - start) * offer.layer_ps + fixed_ps
                    if time_ps < target[placed]:
                        target[placed] = time_ps
                        choices[state | bit, placed] = _Choice(state, start, offer, ends)
    return wider, choices


def _least_starts(row: Sequence[int], room: int, layer_ps: int) -> list[tuple[int, int]]:
    """For each number of placed layers, the start from which 1 to `room` more layers get there soonest.

    The minimum of a sliding window, kept as a queue of rising values.
    """
    starts: list[tuple[int, int]] = []
    window: deque[tuple[int, int]] = deque()
    for placed in range(1, len(row)):
        if row[placed - 1] < _UNREACHED:
            value = row[placed - 1] - (placed - 1) * layer_ps
            while window and window[-1][0] > value:
                window.pop()
            window.append((value, placed - 1))
        while window and window[0][1] < placed - room:
            window.popleft()
        if window:
            starts.append((placed, window[0][1]))
    return starts


def _traced(history: Sequence[dict[tuple[int, int], _Choice]], layers: int) -> tuple[Share, ...]:
    """The shares that led to the last cell: the first stage, those between in order of nodes, the last stage."""
    state, placed, shares = _BOTH_ENDS, layers, []
    for choices in reversed(history):
        choice = choices.get((state, placed))
        if choice is not None:
            shares.append(Share(offer=choice.offer, ends=choice.ends, layers=placed - choice.start))
            state, placed = choice.state, choice.start
    return tuple(sorted(shares, key=lambda share: (not share.ends.first, share.ends.last, share.offer.node)))


def _evened(partition: Partition) -> Partition:
    """The same with layers moved between equally fast nodes, from longer stages to shorter, which costs nothing."""
    shares = list(partition.shares)
    while (move := _evening_move(shares)) is not None:
        giver, taker = move
        shares[giver] = replace(shares[giver], layers=shares[giver].layers - 1)
        shares[taker] = replace(shares[taker], layers=shares[taker].layers + 1)
    return replace(partition, shares=tuple(shares))


def _evening_move(shares: Sequence[Share]) -> tuple[int, int] | None:
    """The two stages with the widest gap in time that a layer can be moved across without turning it round."""
    gaps = [
        (giver.time_ps - taker.time_ps, -taker_index, giver_index)
        for giver_index, giver in enumerate(shares)
        for taker_index, taker in enumerate(shares)
        if giver.offer.layer_ps == taker.offer.layer_ps
        and giver.layers > 1
        and taker.layers < taker.offer.most_layers[taker.ends]
        and giver.time_ps - taker.time_ps > giver.offer.layer_ps
    ]
    if not gaps:
        return None
    _, taker_index, giver_index = max(gaps)
    return giver_index, -taker_index
