"""The split of a model over several nodes: the fastest, or one that costs little more and has more KV pages.

Makes offers of the hands of a crew for `partition`, which knows no bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coordinator.planning.crew import Crew
from coordinator.planning.footprint import FIRST, LAST, MIDDLE, WHOLE, Footprint
from coordinator.planning.hand import Hand
from coordinator.planning.offer import LONGEST_TICKS, Offer
from coordinator.planning.partition import Partition, best_partition
from coordinator.planning.room import SEQUENCES_OF_USE, Priced, is_near, preferred, useful_pages

_SHORTEST_TICK_S = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """The partition chosen, and the fastest, which has as many KV pages or fewer; their times are in ticks."""

    chosen: Priced[Partition]
    fastest: Priced[Partition]
    tick_s: float


def best_split(footprint: Footprint, crew: Crew, hop_s: float) -> Split | None:
    """The split over two or more nodes with room for at least the KV pages of `footprint`, or None."""
    fastest = _split(footprint, crew, hop_s, 1)
    if fastest is None:
        return None
    chosen = preferred((fastest, _roomiest(footprint, crew, hop_s, fastest)))
    assert chosen is not None
    return Split(chosen=chosen, fastest=fastest, tick_s=_tick_s(footprint, crew))


def _roomiest(footprint: Footprint, crew: Crew, hop_s: float, fastest: Priced[Partition]) -> Priced[Partition]:
    """The split for the most whole sequences, up to those of use, that costs little more than `fastest`."""
    roomiest, fewest, most = fastest, fastest.pages // footprint.pages, SEQUENCES_OF_USE
    while fewest < most:
        sequences = (fewest + most + 1) // 2
        found = _split(footprint, crew, hop_s, sequences)
        if found is not None and is_near(found.cost, fastest.cost):
            roomiest, fewest = found, sequences
        else:
            most = sequences - 1
    return roomiest


def _split(footprint: Footprint, crew: Crew, hop_s: float, sequences: int) -> Priced[Partition] | None:
    """The fastest split with room for that many sequences."""
    wide = replace(footprint, pages=sequences * footprint.pages)
    tick_s = _tick_s(footprint, crew)
    offers = [_offers(wide, hands, node, tick_s) for node, hands in enumerate(crew.hands)]
    partition = best_partition(offers, round(hop_s / tick_s))
    if partition is None:
        return None
    pages = min(
        crew.hands[each.offer.node][each.offer.group].most_pages(footprint, each.layers, each.ends)
        for each in partition.ranges
    )
    return Priced(choice=partition, cost=partition.cost, pages=min(pages, useful_pages(footprint)))


def _offers(footprint: Footprint, hands: Sequence[Hand], node: int, tick_s: float) -> list[Offer]:
    """The offers of one node, without those that another is no worse than (eight equal GPUs)."""
    offers: list[Offer] = []
    for place, hand in enumerate(hands):
        offer = _offer(footprint, hand, node, place, tick_s)
        if not any(other.is_no_worse_than(offer) for other in offers):
            offers.append(offer)
    return offers


def _offer(footprint: Footprint, hand: Hand, node: int, place: int, tick_s: float) -> Offer:
    positions = np.arange(footprint.spec.layers + 1)
    return Offer(
        node=node,
        group=place,
        ticks_P=max(1, round(hand.layer_s / tick_s)) * positions,
        output_ticks=round(hand.output_s / tick_s),
        starts_P={ends: np.maximum(positions - hand.most_layers(footprint, ends), 0) for ends in (FIRST, MIDDLE, LAST)},
    )


def _tick_s(footprint: Footprint, crew: Crew) -> float:
    """A picosecond, or more where a node would take years for a token."""
    longest_s = max((hand.time_s(footprint.spec.layers, WHOLE) for own in crew.hands for hand in own), default=0.0)
    return max(_SHORTEST_TICK_S, longest_s / LONGEST_TICKS)
