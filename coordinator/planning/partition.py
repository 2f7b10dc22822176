"""Which layers each node takes: the search for the split that a token gets through fastest.

Layers may be of unlike cost: a stage is a range of layers, and what it takes is the difference of two sums over all
layers before its edges. What is minimised is the time of a token through all stages and hops (one stream) plus the
time of the longest stage (the rate under load).

Any node may have the first stage and any other the last; the stages between follow in the order in which the nodes are
given, or in the reverse order. Where all layers cost the same, no other order is faster. Where they do not, one may be,
but to find it among all orders of many nodes would take exponentially long.

For a bound on the longest stage, `sweep` finds the fastest way through exactly. The bound itself is searched by branch
and bound: with a lower bound the way through can only get slower, so an interval of bounds is not looked into once its
best possible cost is no better than what is known. The result is within TOLERANCE of the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, pairwise, permutations
from typing import NamedTuple

from coordinator.planning.footprint import FIRST, LAST, MIDDLE
from coordinator.planning.offer import LayerRange, Offer
from coordinator.planning.sweep import Sweeps

TOLERANCE = 0.005
_UNBOUNDED = 1 << 58


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """The ranges of layers that offers take, in order, with the cost of a token; times are in ticks."""

    ranges: tuple[LayerRange, ...]
    hop: int

    @property
    def through(self) -> int:
        """The time of a token through all stages, and the hops between them and to and from the coordinator."""
        return sum(each.ticks for each in self.ranges) + self.hop * (len(self.ranges) + 1)

    @property
    def longest(self) -> int:
        """The time of the longest stage."""
        return max(each.ticks for each in self.ranges)

    @property
    def cost(self) -> int:
        """What is minimised."""
        return self.through + self.longest

    @property
    def unevenness(self) -> int:
        """The sum of the squares of the stages' times, the less the more alike these are."""
        return sum(each.ticks**2 for each in self.ranges)

    @property
    def fits(self) -> bool:
        """Whether there is memory for every range."""
        return all(each.fits for each in self.ranges)


def best_partition(nodes: Sequence[Sequence[Offer]], hop: int) -> Partition | None:
    """The best split of the layers over two or more of `nodes` (a list of offers for each), or None."""
    offering = [offers for offers in nodes if offers]
    if len(offering) < 2:
        return None
    sweeps = Sweeps(offering, hop)
    best = _fastest_through(sweeps, hop, _UNBOUNDED)
    if best is None:
        return None
    intervals = [_Interval(best.through, 0, best.longest - 1, best.through)]
    while intervals:
        least_cost, low, high, through = heappop(intervals)
        if least_cost >= best.cost * (1 - TOLERANCE):
            break
        middle = (low + high) // 2
        if middle < high:
            heappush(intervals, _Interval(through + middle + 1, middle + 1, high, through))
        found = _fastest_through(sweeps, hop, middle)
        if found is not None and found.longest > low:
            heappush(intervals, _Interval(found.through + low, low, found.longest - 1, found.through))
        best = min(best, found or best, key=lambda partition: partition.cost)
    return _evened(_in_order_of_nodes(best))


class _Interval(NamedTuple):
    """Bounds on the longest stage, and the least that any of them could cost."""

    least_cost: int
    low: int
    high: int
    through: int  # no bound up to `high` lets a token through faster


def _fastest_through(sweeps: Sweeps, hop: int, bound: int) -> Partition | None:
    ranges = sweeps.fastest_through(bound)
    return None if ranges is None else Partition(ranges=ranges, hop=hop)


def _in_order_of_nodes(partition: Partition) -> Partition:
    """The same with the stages between the ends in order of nodes, where that costs nothing."""
    first, *between, last = partition.ranges
    ordered = sorted(between, key=lambda each: each.offer.node)
    found = _lined_up([(each.offer, each.layers) for each in (first, *ordered, last)], partition.hop)
    return found if found.fits and _is_no_slower(found, partition) else partition


def _evened(partition: Partition) -> Partition:
    """The same with layers moved from longer stages to shorter, where that costs nothing."""
    while (evener := _with_layer_moved(partition)) is not None:
        partition = evener
    return partition


def _with_layer_moved(partition: Partition) -> Partition | None:
    """The partition with one layer moved across the widest gap in time that this makes narrower, if there is one."""
    ticks, layers = [each.ticks for each in partition.ranges], [each.layers for each in partition.ranges]
    pairs = permutations(range(len(ticks)), 2)
    for giver, taker in sorted(pairs, key=lambda pair: (ticks[pair[1]] - ticks[pair[0]], pair[1], -pair[0])):
        if ticks[giver] <= ticks[taker]:
            break
        moved = [count + (place == taker) - (place == giver) for place, count in enumerate(layers)]
        offers = [each.offer for each in partition.ranges]
        found = _lined_up(list(zip(offers, moved, strict=True)), partition.hop)
        if found.fits and _is_no_slower(found, partition) and found.unevenness < partition.unevenness:
            return found
    return None


def _lined_up(stages: Sequence[tuple[Offer, int]], hop: int) -> Partition:
    """The partition in which each offer takes so many layers, one after the other."""
    edges = list(accumulate((layers for _, layers in stages), initial=0))
    ends = [FIRST, *(MIDDLE for _ in stages[2:]), LAST]
    return Partition(
        ranges=tuple(
            LayerRange(offer=offer, ends=own, start=start, stop=stop)
            for (offer, _), own, (start, stop) in zip(stages, ends, pairwise(edges), strict=True)
        ),
        hop=hop,
    )


def _is_no_slower(partition: Partition, other: Partition) -> bool:
    return partition.through <= other.through and partition.longest <= other.longest
