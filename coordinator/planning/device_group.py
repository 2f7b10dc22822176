"""What can take a stage: one device of a node, or several of one kind that split each layer between them.

Owns what a stage takes of each device's memory and how long a token is in it. Knows no other nodes.

Shapes: P positions between layers, 0 to the number of layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coordinator.planning.footprint import Ends, Footprint
from coordinator.planning.ways import Way
from layerline.facts import ALL_REDUCE_BYTES, DeviceFacts, NodeFacts
from layerline.models.model_parts import ModelPart
from layerline.models.spec import LayerSpec
from layerline.models.weight_size import WeightSize
from layerline.plan import DTYPE_BYTES
from layerline.sharing import Sharing

EQUAL_WITHIN = 1.15  # speeds no further apart count as equal
UNPACKING_BYTES = 64  # that unpacking a number reads and writes, about: 30 to 40 counted, 70 to 100 measured on a CPU
BESIDE_S = 100e-6  # of a layer whose rows go to the CPU and come back, about
ALL_REDUCES = 2  # of a layer that is split: after attention and after the feed-forward, or after each of its branches


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightTimes:
    """What weights cost a token, in seconds: each byte to be read, and each number to be multiplied with."""

    byte_s: float
    number_s: float

    def time_s(self, weights: WeightSize) -> float:
        """What so many weights cost."""
        return weights.read_bytes * self.byte_s + weights.numbers * self.number_s

    def unpacking(self) -> WeightTimes:
        """The same where each number is unpacked in memory before it is multiplied."""
        return WeightTimes(byte_s=self.byte_s, number_s=self.number_s + UNPACKING_BYTES * self.byte_s)

    def slower(self, factor: float) -> WeightTimes:
        """The same where everything takes so many times as long."""
        return WeightTimes(byte_s=factor * self.byte_s, number_s=factor * self.number_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """One device of a group, its part of the model with the memory of that, and what weights cost a token there."""

    device: DeviceFacts
    part: ModelPart
    footprint: Footprint
    times: WeightTimes

    @property
    def is_measured(self) -> bool:
        """Whether those times are more than a guess."""
        return self.device.memory_bytes_per_s > 0

    def missing_bytes(self, layers: range, pages: int) -> int:
        """How much more the device would have to offer to take part in a stage; not positive if it offers enough."""
        return self.footprint.needed_bytes(layers, pages) - self.device.budget_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """The CPU on which some experts lie, and how long it takes to read a byte of them."""

    device: DeviceFacts
    byte_s: float

    def time_s(self, read_bytes: int) -> float:
        """What a token's experts cost there in a layer, of which it reads so much; rows go there and come back."""
        return read_bytes * self.byte_s + BESIDE_S if read_bytes else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceGroup:
    """Devices of one node and kind, and how they share layers.

    Times are of one row, in seconds: of an all-reduce between the devices, of each layer with its all-reduces, and of
    the output matrix.
    """

    node: NodeFacts
    way: Way
    ranks: tuple[Rank, ...]
    sharing: Sharing
    beside: Beside | None
    all_reduce_s: float
    layers_s: tuple[float, ...]
    output_s: float

    @classmethod
    def of(
        cls,
        whole: Footprint,
        node: NodeFacts,
        way: Way,
        ranks: tuple[Rank, ...],
        sharing: Sharing,
        beside: Beside | None = None,
    ) -> DeviceGroup:
        """The group that `ranks` make up, which compute in `way`, for the model that takes `whole` on one device.

        Some of its experts may lie `beside` the devices.
        """
        all_reduce_s = _all_reduce_s(whole, node) if len(ranks) > 1 else 0.0
        if len(ranks) == 1 or (all_reduce_s and all(rank.is_measured for rank in ranks)):
            times = [_times_s(rank.footprint, rank.times) for rank in ranks]
            slowest_s = map(max, zip(*(layers for layers, _ in times), strict=True))
            model = whole.sizes.model
            layers_s = tuple(
                _all_reduces(model.layer(layer)) * all_reduce_s + own for layer, own in enumerate(slowest_s)
            )
            output_s = all_reduce_s + max(output for _, output in times)
        else:  # nothing says that splitting helps, so the less the better
            slowest = max((rank.times for rank in ranks), key=lambda times: times.time_s(whole.sizes.layers[0]))
            layers_s, output_s = _times_s(whole, slowest.slower(EQUAL_WITHIN ** (len(ranks) - 1)))
        if beside is not None:
            read = [[layer.beside_read_bytes for layer in rank.footprint.sizes.layers] for rank in ranks]
            besides_s = [beside.time_s(sum(of_ranks)) for of_ranks in zip(*read, strict=True)]
            layers_s = tuple(own + more for own, more in zip(layers_s, besides_s, strict=True))
        return cls(
            node=node,
            way=way,
            ranks=ranks,
            sharing=sharing,
            beside=beside,
            all_reduce_s=all_reduce_s,
            layers_s=layers_s,
            output_s=output_s,
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

    @property
    def mean_layer_s(self) -> float:
        """The time of a layer, on average."""
        return sum(self.layers_s) / len(self.layers_s)

    def time_s(self, layers: range) -> float:
        """The time of a token in a stage."""
        output_s = self.output_s if layers.stop == len(self.layers_s) else 0.0
        return sum(self.layers_s[layers.start : layers.stop]) + output_s

    def needed_bytes(self, layers: range, pages: int) -> int:
        """What a stage takes of all the devices together."""
        return sum(rank.footprint.needed_bytes(layers, pages) for rank in self.ranks)

    def workspace_bytes(self, ends: Ends) -> int:
        """What of that is for computing a step."""
        return sum(rank.footprint.workspace_bytes(ends) for rank in self.ranks)

    def holds(self, layers: range, pages: int) -> bool:
        """Whether a stage of `layers` fits."""
        held = sum(rank.footprint.beside_bytes(layers) for rank in self.ranks)
        has_room = self.beside is None or held <= self.beside.device.budget_bytes
        return has_room and all(rank.missing_bytes(layers, pages) <= 0 for rank in self.ranks)

    def helps(self, pages: int) -> bool:
        """Whether the smallest layer fits between two others."""
        return all(rank.footprint.least_bytes(pages) <= rank.device.budget_bytes for rank in self.ranks)

    def starts(self, ends: Ends, pages: int) -> NDArray[np.int64]:
        """Where the longest stage up to each position begins that fits; the position itself where none does."""
        starts = [rank.footprint.starts(rank.device.budget_bytes, ends, pages) for rank in self.ranks]
        if self.beside is not None:  # ranks have nearly as much there
            share = self.beside.device.budget_bytes // len(self.ranks)
            starts += [rank.footprint.beside_starts(share) for rank in self.ranks]
        latest_P: NDArray[np.int64] = np.max(starts, axis=0)
        return latest_P

    def most_pages(self, layers: range) -> int:
        """The most KV pages that a stage of `layers` has room for."""
        return min(rank.footprint.most_pages(rank.device.budget_bytes, layers) for rank in self.ranks)


def _times_s(footprint: Footprint, times: WeightTimes) -> tuple[tuple[float, ...], float]:
    """The times of each layer and of the output matrix."""
    sizes = footprint.sizes
    by_size = {size: times.time_s(size) for size in set(sizes.layers)}
    return tuple(by_size[size] for size in sizes.layers), times.time_s(sizes.output)


def _all_reduces(layer: LayerSpec) -> int:
    experts = layer.feed_forward.experts
    return ALL_REDUCES + (experts is not None and experts.apart)


def _all_reduce_s(whole: Footprint, node: NodeFacts) -> float:
    """The time of an all-reduce of one row, from what the node measured; longer rows take as much longer."""
    row_bytes = whole.sizes.model.hidden * DTYPE_BYTES[whole.sizes.form.dtype]
    return node.all_reduce_us / 1e6 * max(1.0, row_bytes / ALL_REDUCE_BYTES)
