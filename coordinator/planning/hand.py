"""What can take a stage: one device of a node, or several of one kind that split each layer between them.

Owns what a stage takes of each device's memory and how long a token is in it. Knows no other nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.planning.footprint import Ends, Footprint
from coordinator.planning.speeds import EQUAL_WITHIN
from layerline.facts import ALL_REDUCE_BYTES, DeviceFacts, NodeFacts
from layerline.models.shares import RankShare
from layerline.plan import DTYPE_BYTES

ALL_REDUCES = 2  # of a layer that is split: after attention and after the feed-forward


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """One device of a hand, its part of the model, and the time in seconds that a byte of weights costs a token."""

    device: DeviceFacts
    share: RankShare
    byte_s: float

    @property
    def is_measured(self) -> bool:
        """Whether that time is more than a guess."""
        return self.device.memory_bytes_per_s > 0

    def footprint(self, footprint: Footprint) -> Footprint:
        """That of the rank, where the stage has `footprint`."""
        return footprint.of_rank(self.share)

    def missing_bytes(self, footprint: Footprint, layers: int, ends: Ends) -> int:
        """How much more the device would have to offer to take part in a stage; not positive if it offers enough."""
        return self.footprint(footprint).needed_bytes(layers, ends) - self.device.budget_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Hand:
    """Devices of one node and kind; `weights` is how they share, as `StageSpec.shares` has it.

    Times are of one row, in seconds: of an all-reduce between the devices, of a layer with its all-reduces, and of
    the output matrix.
    """

    node: NodeFacts
    ranks: tuple[Rank, ...]
    weights: tuple[int, ...]
    all_reduce_s: float
    layer_s: float
    output_s: float

    @classmethod
    def of(cls, footprint: Footprint, node: NodeFacts, ranks: tuple[Rank, ...], weights: tuple[int, ...]) -> Hand:
        """The hand that `ranks` make up for the model of `footprint`, whatever the number of pages."""
        times_s = [_times_s(rank.footprint(footprint), rank) for rank in ranks]
        all_reduce_s = _all_reduce_s(footprint, node)
        layer_s, output_s = max(layer for layer, _ in times_s), max(output for _, output in times_s)
        if len(ranks) == 1:
            all_reduce_s = 0.0
        elif all_reduce_s and all(rank.is_measured for rank in ranks):
            layer_s, output_s = layer_s + ALL_REDUCES * all_reduce_s, output_s + all_reduce_s
        else:  # nothing says that splitting helps, so the less the better
            slowest_byte_s = EQUAL_WITHIN ** (len(ranks) - 1) * max(rank.byte_s for rank in ranks)
            layer_s, output_s = footprint.layer_bytes * slowest_byte_s, footprint.output_bytes * slowest_byte_s
        return cls(
            node=node, ranks=ranks, weights=weights, all_reduce_s=all_reduce_s, layer_s=layer_s, output_s=output_s
        )

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices' names, rank by rank."""
        return tuple(rank.device.device for rank in self.ranks)

    @property
    def budget_bytes(self) -> int:
        """What the devices offer together."""
        return sum(rank.device.budget_bytes for rank in self.ranks)

    @property
    def is_measured(self) -> bool:
        """Whether its times are more than guesses."""
        return all(rank.is_measured for rank in self.ranks) and (len(self.ranks) == 1 or self.all_reduce_s > 0)

    def time_s(self, layers: int, ends: Ends) -> float:
        """The time of a token in a stage."""
        return layers * self.layer_s + (self.output_s if ends.last else 0.0)

    def needed_bytes(self, footprint: Footprint, layers: int, ends: Ends) -> int:
        """What a stage takes of all the devices together."""
        return sum(rank.footprint(footprint).needed_bytes(layers, ends) for rank in self.ranks)

    def workspace_bytes(self, footprint: Footprint, ends: Ends) -> int:
        """What of that is for computing a step."""
        return sum(rank.footprint(footprint).workspace_bytes(ends) for rank in self.ranks)

    def holds(self, footprint: Footprint, layers: int, ends: Ends) -> bool:
        """Whether a stage of that many layers fits."""
        return all(rank.missing_bytes(footprint, layers, ends) <= 0 for rank in self.ranks)

    def most_layers(self, footprint: Footprint, ends: Ends) -> int:
        """The most layers that fit."""
        return min(rank.footprint(footprint).most_layers(rank.device.budget_bytes, ends) for rank in self.ranks)

    def most_pages(self, footprint: Footprint, layers: int, ends: Ends) -> int:
        """The most KV pages that a stage of that many layers has room for."""
        return min(rank.footprint(footprint).most_pages(rank.device.budget_bytes, layers, ends) for rank in self.ranks)


def _times_s(footprint: Footprint, rank: Rank) -> tuple[float, float]:
    """The times of the rank's part of a layer and of the output matrix."""
    return footprint.layer_bytes * rank.byte_s, footprint.output_bytes * rank.byte_s


def _all_reduce_s(footprint: Footprint, node: NodeFacts) -> float:
    """The time of an all-reduce of one row, from what the node measured; longer rows take as much longer."""
    row_bytes = footprint.spec.hidden * DTYPE_BYTES[footprint.dtype]
    return node.all_reduce_us / 1e6 * max(1.0, row_bytes / ALL_REDUCE_BYTES)
