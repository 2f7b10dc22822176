"""Node daemons on machines of the lab."""

from __future__ import annotations

import json
import os

from node.daemon.devices.speeds import speed_key
from node.daemon.devices.system import system_devices
from tests.lab.machine import Machine
from tests.lab.process import Process

START_DEADLINE_S = 30.0
SPEED = {"matrix_flops_per_s": 5e11, "memory_bytes_per_s": 1e10, "busy": False}


def start_node(
    machine: Machine,
    *options: str,
    name: str = "",
    device: str = "cpu:1",
    cpu: int | None = None,
    **environment: str,
) -> Process:
    """A node, of one thread and called as its machine unless told otherwise, that can be asked already."""
    words = ["layerline", "node", "--name", name or machine.name, "--device", device, *options]
    node = machine.start(words, cpu=cpu, **environment)
    node.wait_for(r"Listening on", deadline_s=START_DEADLINE_S)
    return node


def spare_measuring(machine: Machine) -> None:
    """Leaves a measurement in the machine's state, as an earlier start of its node would have."""
    with system_devices(os.environ) as system:
        key = speed_key(system.read("cpu"), 1)
    (machine.folder / "state" / "speeds.json").write_text(json.dumps({key: SPEED}))


def await_measured(node: Process) -> None:
    """Waits until a node knows how fast its devices are, so that it is fit for use."""
    node.wait_for(r"Device .* computes", deadline_s=START_DEADLINE_S)
