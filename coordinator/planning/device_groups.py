"""The device groups of a node: each of its devices, and its like devices together that a layer could be split over.

A group shares equally or by speed, so that its devices are done at the same time, and also by memory where that is
another proportion, so that they are full at the same time. Which is better is for the planner to find.

Speeds are what was measured on the devices. Measurements vary from one to the next, so speeds near each other count as
equal; that keeps plans steady and shares even.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from coordinator.planning.device_group import EQUAL_WITHIN, Beside, DeviceGroup, Rank, WeightTimes
from coordinator.planning.problem import Problem
from coordinator.planning.ways import Way, has_kernels
from layerline.errors import PlanInvalidError
from layerline.facts import DEVICE_KINDS, DeviceFacts, NodeFacts
from layerline.models.model_parts import most_with_heads
from layerline.models.weight_size import WeightSize
from layerline.sharing import Sharing

_PROPORTION = 1000  # of the device that takes most
_UNKNOWN_BYTES_PER_S = 1.0  # when nothing was measured anywhere, only that all are alike matters
Times = Mapping[tuple[str, str], WeightTimes]  # by node id and device


def groups_of(problem: Problem, node: NodeFacts, times: Times) -> tuple[DeviceGroup, ...]:
    """The groups of `node`, fastest first; of as many devices as asked for, or as it has, unless that is free."""
    if node.state != "ready":
        return ()
    groups = [
        group
        for way, devices in _devices_of_groups(problem, node, times)
        for proportions in _proportions(_mean_weights(problem, way), node, devices, times)
        for sharing, beside in _sharings(problem, node, devices, proportions, times)
        if (group := _group(problem, node, way, devices, sharing, beside, times)) is not None
    ]
    return tuple(sorted(groups, key=lambda group: (group.mean_layer_s, len(group.ranks))))


def weight_times(problem: Problem) -> Times:
    """What weights cost a token on each device of the ready nodes that computes.

    Those of devices that compute in one way and are nearly as fast are made equal. A speed that was not measured is
    taken to be the slowest that was.
    """
    owned = [(node, device) for node in problem.nodes if node.state == "ready" for device in node.devices]
    memory_floor = _slowest((device.memory_bytes_per_s for _, device in owned), _UNKNOWN_BYTES_PER_S)
    matrix_floor = _slowest((device.matrix_flops_per_s for _, device in owned), float("inf"))
    by_way: dict[Way, dict[tuple[str, str], WeightTimes]] = {}
    for node, device in owned:
        times = WeightTimes(
            byte_s=1 / (device.memory_bytes_per_s or memory_floor),
            number_s=2 / (device.matrix_flops_per_s or matrix_floor),  # a multiplication and an addition
        )
        if way := problem.way_of(device):
            own = times if problem.multiplies_fast(device, way) else times.unpacking()
            by_way.setdefault(way, {})[node.node_id, device.device] = own
    levelled = [_levelled(times, _mean_weights(problem, way)) for way, times in by_way.items()]
    return {place: times for own in levelled for place, times in own.items()}


def most_like_devices(node: NodeFacts) -> int:
    """How many devices of one kind the node has."""
    return max((len(own) for own in _by_kind(node)), default=0)


def _slowest(speeds: Iterable[float], otherwise: float) -> float:
    return min((speed for speed in speeds if speed > 0), default=otherwise)


def _mean_weights(problem: Problem, way: Way) -> WeightSize:
    """All layers' weights, by which devices are compared: how many numbers there are to a byte."""
    layers = problem.footprint_of(way).sizes.layers
    return WeightSize(
        numbers=sum(layer.numbers for layer in layers),
        read_bytes=sum(layer.read_bytes for layer in layers),
        held_bytes=sum(layer.held_bytes for layer in layers),
    )


def _levelled(times: Times, weights: WeightSize) -> Times:
    """`times`, each that lies within EQUAL_WITHIN of the fastest of its like replaced by that."""
    level, fastest_s, found = None, 0.0, {}
    for place, own in sorted(times.items(), key=lambda item: (item[1].time_s(weights), item[1].byte_s)):
        if level is None or own.time_s(weights) > fastest_s * EQUAL_WITHIN:
            level, fastest_s = own, own.time_s(weights)
        found[place] = level
    return found


def _devices_of_groups(
    problem: Problem, node: NodeFacts, times: Times
) -> Iterator[tuple[Way, tuple[DeviceFacts, ...]]]:
    """The fastest of each kind, of equals the largest, in the order in which the node lists them; and their way."""
    asked = problem.request.tensor_parallel
    for own in _by_kind(node):
        way = problem.way_of(own[0])  # all of a kind have the same kernels, or none
        if way is None:
            continue
        weights = _mean_weights(problem, way)
        ranked = sorted(
            own,
            key=lambda device: (times[node.node_id, device.device].time_s(weights), -device.budget_bytes),
        )
        for degree in _degrees(len(own), asked, most_like_devices(node)):
            if degree == 1:
                yield from ((way, (device,)) for device in own)
            else:
                yield way, tuple(device for device in own if device in ranked[:degree])


def _by_kind(node: NodeFacts) -> list[list[DeviceFacts]]:
    kinds = ([device for device in node.devices if device.kind == kind] for kind in DEVICE_KINDS)
    return [own for own in kinds if own]


def _degrees(count: int, asked: int, most: int) -> Sequence[int]:
    """How many of `count` devices a stage may span, where the node has `most` of one kind."""
    if asked:
        return [degree] if count >= (degree := min(asked, most)) else []
    return [*(1 << power for power in range(count.bit_length()) if 1 << power < count), count]


def _proportions(
    weights: WeightSize, node: NodeFacts, devices: Sequence[DeviceFacts], times: Times
) -> list[tuple[int, ...]]:
    """By speed and by memory, once where these are the same."""
    by_speed = _proportional_to([1 / times[node.node_id, device.device].time_s(weights) for device in devices])
    by_memory = _proportional_to([device.budget_bytes for device in devices])
    return list(dict.fromkeys((by_speed, by_memory)))


def _sharings(
    problem: Problem,
    node: NodeFacts,
    devices: Sequence[DeviceFacts],
    proportions: tuple[int, ...],
    times: Times,
) -> Iterator[tuple[Sharing, Beside | None]]:
    """How devices may share the model's layers, and where experts may lie beside them, as far as that is asked for."""
    plain = Sharing(devices=len(devices), proportions=proportions)
    counts = [kind.feed_forward.expert_count for kind in problem.spec.kinds if kind.feed_forward.experts]
    asked, spreads = problem.request.experts, len(devices) > 1 and bool(counts)
    beside = _beside(node, devices, times) if counts and problem.uses_expert_device else None
    needs_beside = beside is not None and problem.request.expert_device == "cpu"
    could_spread = asked == "spread" and sum(each.kind == devices[0].kind for each in node.devices) > 1
    if not needs_beside and not could_spread:
        yield plain, None
    if asked == "split" or not counts:
        return
    with_heads = most_with_heads(problem.spec, len(devices))
    spread = replace(plain, experts="spread", attention_devices=with_heads if with_heads < len(devices) else 0)
    if spreads and not needs_beside:
        yield spread, None
    if beside is not None:
        own = -(-max(counts) // len(devices))
        for quarters in range(4):
            yield replace(spread, beside=True, device_experts=own * quarters // 4), beside


def _beside(node: NodeFacts, devices: Sequence[DeviceFacts], times: Times) -> Beside | None:
    """The CPU of a node on which experts of an accelerator may lie: the one with most room, if kernels compute
    there.
    """
    if any(device.kind == "cpu" for device in devices):
        return None
    able = [device for device in node.devices if has_kernels(device)]
    if not able:
        return None
    largest = max(able, key=lambda device: device.budget_bytes)
    speed = largest.memory_bytes_per_s
    own = times.get((node.node_id, largest.device))
    return Beside(device=largest, byte_s=1 / speed if speed else own.byte_s if own else _UNKNOWN_BYTES_PER_S)


def _proportional_to(values: Sequence[float]) -> tuple[int, ...]:
    """Proportions of `values`; none, which means equal ones, where these are nearly the same."""
    largest = max(values)
    if min(values) * EQUAL_WITHIN >= largest:
        return ()
    return tuple(max(1, round(_PROPORTION * value / largest)) for value in values)


def _group(
    problem: Problem,
    node: NodeFacts,
    way: Way,
    devices: Sequence[DeviceFacts],
    sharing: Sharing,
    beside: Beside | None,
    times: Times,
) -> DeviceGroup | None:
    """The group, or None if the model cannot be split over so many devices."""
    try:
        parts = problem.footprint_of(way).sizes.parts(sharing)
    except PlanInvalidError:
        return None
    ranks = tuple(
        Rank(
            device=device,
            part=part,
            footprint=problem.footprint_of(way, part),
            times=times[node.node_id, device.device],
        )
        for device, part in zip(devices, parts, strict=True)
    )
    return DeviceGroup.of(problem.footprint_of(way), node, way, ranks, sharing, beside)
