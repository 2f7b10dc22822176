"""Which speeds a plan had to guess or to doubt, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.planning.candidates import Candidates
from layerline.facts import DeviceFacts, NodeFacts


def speed_notes(candidates: Candidates) -> list[str]:
    """A sentence on each node not measured yet, or measured while it was busy; none where there is no choice."""
    nodes = [node for node, groups in zip(candidates.problem.nodes, candidates.groups, strict=True) if groups]
    devices = [device for node in nodes for device in node.devices]
    if len(devices) < 2:
        return []
    unmeasured = [
        f"{_speed_of(node, found)} is not measured yet: it is taken to be the slowest that is, and {node.name} may have"
        " fewer layers than it could."
        for node in nodes
        if (found := [device for device in node.devices if not _is_measured(device)])
    ]
    if not any(_is_measured(device) for device in devices):
        unmeasured = ["No speed is measured yet: all devices are taken to be equally fast."]
    busy = [
        f"{_speed_of(node, found)} was measured while other programs ran there: it may be faster than this plan takes"
        f" it to be, and have fewer layers than it could. {node.name} measures again by itself; plan again then."
        for node in nodes
        if (found := [device for device in node.devices if device.measured_while_busy])
    ]
    return unmeasured + busy


def _is_measured(device: DeviceFacts) -> bool:
    return device.memory_bytes_per_s > 0


def _speed_of(node: NodeFacts, devices: Sequence[DeviceFacts]) -> str:
    """The subject of a sentence: the node, or some of its devices."""
    if len(devices) == len(node.devices):
        return f"The speed of {node.name}"
    return f"The speed of {', '.join(device.device for device in devices)} of {node.name}"
