"""What a plan can be made of: the nodes and their hands, for one model and one request.

The order is by name and id, whatever order the nodes were given in, so that equal worlds give equal plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coordinator.planning.footprint import MIDDLE, PAGE_TOKENS, WHOLE, Ends, Footprint
from coordinator.planning.grouping import hands_of
from coordinator.planning.hand import Hand
from coordinator.planning.room import Priced, preferred, useful_pages
from coordinator.planning.speeds import seconds_per_byte
from layerline.facts import NodeFacts
from layerline.models.spec import ModelSpec
from layerline.plan import PlanRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class Crew:
    """The nodes in order, and the hands of each, fastest first; nodes that are not ready have none.

    `asked` is the number of devices that stages are to span, 0 where that is free.
    """

    nodes: tuple[NodeFacts, ...]
    hands: tuple[tuple[Hand, ...], ...]
    asked: int

    @classmethod
    def of(cls, spec: ModelSpec, request: PlanRequest, nodes: Sequence[NodeFacts]) -> Crew:
        """The crew that `nodes` make up for the model as `request` wants it held."""
        ordered = tuple(sorted(nodes, key=lambda node: (node.name, node.node_id)))
        pairs = [(node, device) for node in ordered if node.state == "ready" for device in node.devices]
        byte_s = seconds_per_byte([device for _, device in pairs], request.dtype)
        times = {(node.node_id, device.device): time for (node, device), time in zip(pairs, byte_s, strict=True)}
        footprint, asked = Footprint.asked(spec, request, PAGE_TOKENS), request.tensor_parallel
        return cls(nodes=ordered, hands=tuple(hands_of(footprint, node, times, asked) for node in ordered), asked=asked)

    def as_asked(self) -> Crew:
        """The same without nodes that have fewer devices than stages are to span."""
        hands = tuple(tuple(hand for hand in own if len(hand.ranks) == self.asked) for own in self.hands)
        return replace(self, hands=hands)

    def hands_of(self, node: NodeFacts) -> tuple[Hand, ...]:
        """The hands of one of the nodes."""
        return self.hands[self.nodes.index(node)]

    def offered_bytes(self, node: NodeFacts) -> int:
        """The most that `node` offers to one stage."""
        return max((hand.budget_bytes for hand in self.hands_of(node)), default=0)

    def helps(self, node: NodeFacts, footprint: Footprint) -> bool:
        """Whether `node` can hold a layer between two others."""
        return any(hand.holds(footprint, 1, MIDDLE) for hand in self.hands_of(node))

    def hand_for(self, node: NodeFacts, footprint: Footprint, layers: int, ends: Ends) -> Hand | None:
        """The fastest hand of `node` that holds the stage."""
        return next((hand for hand in self.hands_of(node) if hand.holds(footprint, layers, ends)), None)

    def hand_for_all(self, footprint: Footprint) -> Hand | None:
        """The hand of any node that holds the whole model: the fastest, or one with much more room for KV pages."""
        layers, useful = footprint.spec.layers, useful_pages(footprint)
        found = preferred(
            Priced(
                choice=hand,
                cost=hand.time_s(layers, WHOLE),
                pages=min(useful, hand.most_pages(footprint, layers, WHOLE)),
            )
            for own in self.hands
            for hand in own
            if hand.holds(footprint, layers, WHOLE)
        )
        return found.choice if found else None
