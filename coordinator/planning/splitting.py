"""The split of a model over several nodes: the fastest, or one that costs little more and has more KV pages.

Makes offers of the hands of a crew for `partition`, which knows no bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coordinator.planning.crew import Crew
from coordinator.planning.footprint import FIRST, LAST, MIDDLE, Footprint
from coordinator.planning.hand import Hand
from coordinator.planning.partition import Offer, Partition, best_partition
from coordinator.planning.room import SEQUENCES_OF_USE, Priced, is_near, preferred, useful_pages

_PS_PER_S = 1e12


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """The partition chosen, and the fastest, which has as many KV pages or fewer."""

    chosen: Priced[Partition]
    fastest: Priced[Partition]


def best_split(footprint: Footprint, crew: Crew, hop_s: float) -> Split | None:
    """The split over two or more nodes with room for at least the KV pages of `footprint`, or None."""
    fastest = _split(footprint, crew, hop_s, 1)
    if fastest is None:
        return None
    chosen = preferred((fastest, _roomiest(footprint, crew, hop_s, fastest)))
    assert chosen is not None
    return Split(chosen=chosen, fastest=fastest)


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
    offers = [_offers(wide, hands, node) for node, hands in enumerate(crew.hands)]
    partition = best_partition(offers, footprint.spec.layers, round(hop_s * _PS_PER_S))
    if partition is None:
        return None
    pages = min(
        crew.hands[share.offer.node][share.offer.hand].most_pages(footprint, share.layers, share.ends)
        for share in partition.shares
    )
    return Priced(choice=partition, cost=partition.cost_ps, pages=min(pages, useful_pages(footprint)))


def _offers(footprint: Footprint, hands: Sequence[Hand], node: int) -> list[Offer]:
    """The offers of one node, without those that another is no worse than (eight equal GPUs)."""
    offers: list[Offer] = []
    for place, hand in enumerate(hands):
        offer = _offer(footprint, hand, node, place)
        if not any(other.is_no_worse_than(offer) for other in offers):
            offers.append(offer)
    return offers


def _offer(footprint: Footprint, hand: Hand, node: int, place: int) -> Offer:
    return Offer(
        node=node,
        hand=place,
        layer_ps=max(1, round(hand.layer_s * _PS_PER_S)),
        output_ps=round(hand.output_s * _PS_PER_S),
        most_layers={ends: hand.most_layers(footprint, ends) for ends in (FIRST, MIDDLE, LAST)},
    )
