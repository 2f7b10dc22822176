"""The devices that a plan can be made of: each with its node and its time for a byte of weights.

The order is by name and id, whatever order the nodes were given in, so that equal worlds give equal plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.planning.footprint import WHOLE, Ends, Footprint
from coordinator.planning.room import Priced, preferred, useful_pages
from coordinator.planning.speeds import seconds_per_byte
from layerline.facts import DeviceFacts, NodeFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Hand:
    """One device of a node; `byte_s` is the time in seconds that a byte of weights costs a token."""

    node: NodeFacts
    device: DeviceFacts
    byte_s: float

    def holds(self, footprint: Footprint, layers: int, ends: Ends) -> bool:
        """Whether a stage of that many layers fits."""
        return footprint.needed_bytes(layers, ends) <= self.device.budget_bytes

    def most_pages(self, footprint: Footprint, layers: int, ends: Ends) -> int:
        """The most KV pages that a stage of that many layers has room for."""
        return footprint.most_pages(self.device.budget_bytes, layers, ends)


@dataclass(frozen=True, kw_only=True, slots=True)
class Crew:
    """The nodes in order, and the hands of each, fastest first; nodes that are not ready have none."""

    nodes: tuple[NodeFacts, ...]
    hands: tuple[tuple[Hand, ...], ...]

    @classmethod
    def of(cls, nodes: Sequence[NodeFacts], dtype: str) -> Crew:
        """The crew that `nodes` make up for a model in `dtype`."""
        ordered = tuple(sorted(nodes, key=lambda node: (node.name, node.node_id)))
        pairs = [(node, device) for node in ordered if node.state == "ready" for device in node.devices]
        times = seconds_per_byte([device for _, device in pairs], dtype)
        hands = [
            Hand(node=node, device=device, byte_s=byte_s) for (node, device), byte_s in zip(pairs, times, strict=True)
        ]
        return cls(nodes=ordered, hands=tuple(_hands_of(node, hands) for node in ordered))

    def hand_for(self, node: NodeFacts, footprint: Footprint, layers: int, ends: Ends) -> Hand | None:
        """The fastest device of `node` that holds the stage."""
        own = self.hands[self.nodes.index(node)]
        return next((hand for hand in own if hand.holds(footprint, layers, ends)), None)

    def hand_for_all(self, footprint: Footprint) -> Hand | None:
        """The device of any node that holds the whole model: the fastest, or one with much more room for KV pages."""
        layers, useful = footprint.spec.layers, useful_pages(footprint)
        found = preferred(
            Priced(choice=hand, cost=hand.byte_s, pages=min(useful, hand.most_pages(footprint, layers, WHOLE)))
            for own in self.hands
            for hand in own
            if hand.holds(footprint, layers, WHOLE)
        )
        return found.choice if found else None


def most_offered_bytes(node: NodeFacts) -> int:
    """What the largest device of `node` offers to one stage."""
    return max((device.budget_bytes for device in node.devices), default=0)


def _hands_of(node: NodeFacts, hands: Sequence[Hand]) -> tuple[Hand, ...]:
    own = [hand for hand in hands if hand.node is node]
    return tuple(sorted(own, key=lambda hand: hand.byte_s))
