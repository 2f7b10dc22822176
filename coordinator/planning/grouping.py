"""The hands of a node: each of its devices, and the groups of its like devices that a layer could be split over.

A group shares equally or by speed, so that its devices are done at the same time, and also by memory where that is
another share, so that they are full at the same time. Which is better is for the planner to find.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from coordinator.planning.footprint import Footprint
from coordinator.planning.hand import Hand, Rank
from coordinator.planning.speeds import EQUAL_WITHIN
from layerline.errors import PlanInvalidError
from layerline.facts import DEVICE_KINDS, DeviceFacts, NodeFacts
from layerline.models.shares import rank_shares
from layerline.models.spec import ModelSpec

_WEIGHT = 1000  # of the device that takes most
Times = Mapping[tuple[str, str], float]  # the seconds of a byte of weights, by node id and device


def hands_of(footprint: Footprint, node: NodeFacts, times: Times, asked: int) -> tuple[Hand, ...]:
    """The hands of `node`, fastest first; of `asked` devices, or as many as it has, unless that is 0."""
    if node.state != "ready":
        return ()
    hands = [
        hand
        for devices in _device_groups(node, times, asked)
        for weights in _weights(node, devices, times)
        if (hand := _hand(footprint, node, devices, weights, times)) is not None
    ]
    return tuple(sorted(hands, key=lambda hand: (hand.layer_s, len(hand.ranks))))


def most_like_devices(node: NodeFacts) -> int:
    """How many devices of one kind the node has."""
    return max((len(own) for own in _by_kind(node)), default=0)


def check_degree(spec: ModelSpec, asked: int, nodes: Sequence[NodeFacts]) -> None:
    """PlanInvalidError if no stage of the model on `nodes` can span `asked` devices."""
    if asked < 2:
        return
    rank_shares(spec, asked)
    ready = [node for node in nodes if node.state == "ready"]
    most = max(map(most_like_devices, ready), default=0)
    if most < asked:
        counts = ", ".join(f"{node.name} {most_like_devices(node)}" for node in ready) or "none is ready"
        raise PlanInvalidError(
            f"--tensor-parallel {asked} needs a node with {asked} devices of one kind, and there are fewer: {counts}.",
            remedy=f"Ask for at most {max(1, most)}, or start a node with more, as in --device cpu:1,cpu:1.",
        )


def _device_groups(node: NodeFacts, times: Times, asked: int) -> Iterator[tuple[DeviceFacts, ...]]:
    """The fastest of each kind, of equals the largest, in the order in which the node lists them."""
    for own in _by_kind(node):
        ranked = sorted(own, key=lambda device: (times[node.node_id, device.device], -device.budget_bytes))
        for degree in _degrees(len(own), asked, most_like_devices(node)):
            if degree == 1:
                yield from ((device,) for device in own)
            else:
                yield tuple(device for device in own if device in ranked[:degree])


def _by_kind(node: NodeFacts) -> list[list[DeviceFacts]]:
    kinds = ([device for device in node.devices if device.kind == kind] for kind in DEVICE_KINDS)
    return [own for own in kinds if own]


def _degrees(count: int, asked: int, most: int) -> Sequence[int]:
    """How many of `count` devices a stage may span, where the node has `most` of one kind."""
    if asked:
        return [degree] if count >= (degree := min(asked, most)) else []
    return [*(1 << power for power in range(count.bit_length()) if 1 << power < count), count]


def _weights(node: NodeFacts, devices: Sequence[DeviceFacts], times: Times) -> list[tuple[int, ...]]:
    """By speed and by memory, once where these are the same."""
    by_speed = _shared_by([1 / times[node.node_id, device.device] for device in devices])
    by_memory = _shared_by([device.budget_bytes for device in devices])
    return list(dict.fromkeys((by_speed, by_memory)))


def _shared_by(values: Sequence[float]) -> tuple[int, ...]:
    """Weights in proportion to `values`; none, which means equal ones, where these are nearly the same."""
    largest = max(values)
    if min(values) * EQUAL_WITHIN >= largest:
        return ()
    return tuple(max(1, round(_WEIGHT * value / largest)) for value in values)


def _hand(
    footprint: Footprint, node: NodeFacts, devices: Sequence[DeviceFacts], weights: tuple[int, ...], times: Times
) -> Hand | None:
    """The hand, or None if the model cannot be split over so many devices."""
    try:
        shares = rank_shares(footprint.spec, len(devices), weights)
    except PlanInvalidError:
        return None
    ranks = tuple(
        Rank(device=device, share=share, byte_s=times[node.node_id, device.device])
        for device, share in zip(devices, shares, strict=True)
    )
    return Hand.of(footprint, node, ranks, weights)
