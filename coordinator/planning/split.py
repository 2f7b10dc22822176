"""The split of a model over several nodes: the fastest, or one that costs little more and has more KV pages.

Makes offers of the device groups of candidates for `partition`, which knows no bytes.

Shapes: P positions between layers, 0 to the number of layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coordinator.planning.candidates import Candidates
from coordinator.planning.device_group import DeviceGroup
from coordinator.planning.footprint import FIRST, LAST, MIDDLE
from coordinator.planning.offer import LONGEST_TICKS, LayerRange, Offer, Ticks
from coordinator.planning.partition import Partition, best_partition
from coordinator.planning.room import SEQUENCES_OF_USE, Priced, is_near, preferred, useful_pages

HOP_S = 0.001  # from one stage to the next on a LAN, both ends' work included
_SHORTEST_TICK_S = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """The partition chosen, and the fastest, which has as many KV pages or fewer; their times are in ticks."""

    chosen: Priced[Partition]
    fastest: Priced[Partition]
    tick_s: float

    @property
    def through_s(self) -> float:
        """The time of a token through all stages and hops of the chosen one."""
        return self.chosen.choice.through * self.tick_s

    @property
    def ranges(self) -> tuple[LayerRange, ...]:
        """The ranges of layers of the chosen one."""
        return self.chosen.choice.ranges


def best_split(candidates: Candidates, sequence_pages: int) -> Split | None:
    """The split over two or more nodes with room for a sequence's pages at least, or None."""
    search = _Search(candidates, sequence_pages)
    fastest = search.with_room_for(1)
    if fastest is None:
        return None
    chosen = preferred((fastest, search.roomiest(fastest)))
    assert chosen is not None
    return Split(chosen=chosen, fastest=fastest, tick_s=search.tick_s)


class _Search:
    """The splits of `candidates` where a sequence takes `sequence_pages`."""

    def __init__(self, candidates: Candidates, sequence_pages: int) -> None:
        layers = candidates.problem.layers
        longest_s = max((group.time_s(layers) for group in candidates.all_groups), default=0.0)
        self.tick_s = max(_SHORTEST_TICK_S, longest_s / LONGEST_TICKS)  # longer only where a token takes seconds
        self._candidates = candidates
        self._sequence_pages = sequence_pages
        self._ticks = [[_ticks_before(group, self.tick_s) for group in own] for own in candidates.groups]

    def roomiest(self, fastest: Priced[Partition]) -> Priced[Partition]:
        """The split for the most whole sequences, up to those of use, that costs little more than `fastest`."""
        roomiest, fewest, most = fastest, fastest.pages // self._sequence_pages, SEQUENCES_OF_USE
        while fewest < most:
            sequences = (fewest + most + 1) // 2
            found = self.with_room_for(sequences)
            if found is not None and is_near(found.cost, fastest.cost):
                roomiest, fewest = found, sequences
            else:
                most = sequences - 1
        return roomiest

    def with_room_for(self, sequences: int) -> Priced[Partition] | None:
        """The fastest split with room for that many sequences."""
        pages, nodes = sequences * self._sequence_pages, range(len(self._candidates.groups))
        partition = best_partition([self._offers(node, pages) for node in nodes], round(HOP_S / self.tick_s))
        if partition is None:
            return None
        most = min(self._group(each.offer).most_pages(range(each.start, each.stop)) for each in partition.ranges)
        useful = useful_pages(self._sequence_pages)
        return Priced(choice=partition, cost=partition.cost, pages=min(most, useful))

    def _group(self, offer: Offer) -> DeviceGroup:
        return self._candidates.groups[offer.node][offer.group]

    def _offers(self, node: int, pages: int) -> list[Offer]:
        """The offers of one node, without those that another is no worse than (eight equal GPUs)."""
        offers: list[Offer] = []
        for place, group in enumerate(self._candidates.groups[node]):
            offer = Offer(
                node=node,
                group=place,
                ticks_P=self._ticks[node][place],
                output_ticks=round(group.output_s / self.tick_s),
                starts_P={ends: group.starts(ends, pages) for ends in (FIRST, MIDDLE, LAST)},
            )
            if not any(other.is_no_worse_than(offer) for other in offers):
                offers.append(offer)
        return offers


def _ticks_before(group: DeviceGroup, tick_s: float) -> Ticks:
    """The ticks of all layers before each position."""
    ticks = [max(1, round(layer_s / tick_s)) for layer_s in group.layers_s]
    return np.concatenate(([0], np.cumsum(ticks, dtype=np.int64)))
