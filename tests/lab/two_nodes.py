"""The smallest cluster: machines a and b, whose nodes are too small for the model alone, and a desk to ask from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.lab.lab import Lab
from tests.lab.machine import Machine
from tests.lab.nodes import spare_measuring, start_node
from tests.lab.process import Process

MEMORY = "300MiB"  # the whole of SmolLM2 needs 400 MiB with all of its context, half of it 250 MiB
WORKER = "node.worker"
PORT = 7355


class TwoNodes:
    """Machines `a`, `b` and `desk`, and the daemons on the first two by name.

    `by_address` are options that name both nodes, for where finding them is not the matter: it is faster.
    """

    def __init__(self, lab: Lab) -> None:
        self.a, self.b, self.desk = lab["a"], lab["b"], lab["desk"]
        self.daemons: dict[str, Process] = {}
        addresses = [f"{machine.ipv4}:{PORT}" for machine in (self.a, self.b)]
        self.by_address = ("--no-mdns", *(word for address in addresses for word in ("--node", address)))

    def start(self, machine: Machine) -> None:
        """Starts the node of `machine`, or starts it anew after all that was on the machine is ended."""
        machine.kill_everything()
        self.daemons[machine.name] = start_node(machine, "--memory", MEMORY)

    def worker(self, machine: Machine) -> psutil.Process:
        """The one worker on `machine`."""
        (worker,) = self.daemons[machine.name].children(WORKER)
        return worker

    def workers(self) -> set[int]:
        """The process ids of all workers."""
        return {child.pid for daemon in self.daemons.values() for child in daemon.children(WORKER)}


@contextmanager
def two_nodes(model: Path, *, ipv4: bool = True) -> Iterator[TwoNodes]:
    """The cluster for the time of the block, both nodes up and with `model` in their folders."""
    with Lab("a", "b", "desk", ipv4=ipv4) as lab:
        cluster = TwoNodes(lab)
        for machine in (cluster.a, cluster.b):
            machine.give_model(model)
            spare_measuring(machine)
            cluster.start(machine)
        yield cluster
