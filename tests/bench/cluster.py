"""Nodes and a coordinator, in a lab whose cables carry 1 Gbit/s, with a model loaded and warm."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.bench import usage
from tests.bench.layout import Layout
from tests.bench.models import BenchModel
from tests.bench.placement import Placement
from tests.bench.streams import Stream, streams_from_json
from tests.lab.lab import Lab
from tests.lab.machine import Machine
from tests.lab.nodes import await_measured, start_node

LINK_MBIT = 1_000
NODE_NAMES = ("a", "b")
DESK = "desk"
COORDINATOR_PORT = 7400
HTTP_ADDRESS = "127.0.0.1:7380"  # where a coordinator serves HTTP of its own accord
START_DEADLINE_S = 60.0
LOAD_DEADLINE_S = 300.0
ASK_DEADLINE_S = 600.0


class Cluster:
    """A loaded model on some nodes. `nodes` are their machines; the coordinator is on a machine of its own."""

    def __init__(self, lab: Lab, nodes: Sequence[Machine], load_s: float) -> None:
        self.nodes = tuple(nodes)
        self.load_s = load_s
        self._lab = lab

    def ask(
        self, requests: Sequence[dict[str, Any]], beside: Sequence[dict[str, Any]] = (), lead_tokens: int = 0
    ) -> tuple[Stream, ...]:
        """What became of `requests`, all made at the same time from beside the coordinator.

        Those `beside`, whose answers come last, are made before, have `lead_tokens` by then, and are left in the end.
        """
        address = f"127.0.0.1:{COORDINATOR_PORT}"
        asked = {"address": address, "requests": list(requests), "beside": list(beside), "lead_tokens": lead_tokens}
        return streams_from_json(self._run([sys.executable, "-m", "tests.bench.streams", json.dumps(asked)]))

    def ask_http(self, requests: Sequence[dict[str, Any]]) -> tuple[Stream, ...]:
        """The same over HTTP, for requests with a prompt and max_tokens."""
        asked = {"address": HTTP_ADDRESS, "requests": list(requests)}
        return streams_from_json(self._run([sys.executable, "-m", "tests.bench.http_streams", json.dumps(asked)]))

    def _run(self, words: Sequence[str]) -> str:
        finished = self._lab[DESK].run(words, deadline_s=ASK_DEADLINE_S)
        if finished.exit_code:
            raise RuntimeError(finished.stderr.strip().splitlines()[-1])
        return finished.stdout

    def stats(self) -> dict[str, Any]:
        """What the coordinator says, as `layerline stats --json` has it."""
        words = ["layerline", "stats", "--json", "--coordinator", f"127.0.0.1:{COORDINATOR_PORT}"]
        stats: dict[str, Any] = json.loads(self._run(words))
        return stats

    def worker_bytes(self) -> dict[str, int]:
        """Resident memory of each node's workers, by the node's name."""
        return {node.name: usage.resident_bytes(usage.workers(node.pids())) for node in self.nodes}

    def workers_cpu_s(self) -> float:
        """Seconds of CPU that all workers have used."""
        return sum(usage.cpu_s(usage.workers(node.pids())) for node in self.nodes)

    def nodes_cpu_s(self) -> float:
        """Seconds of CPU that all workers and daemons have used."""
        return sum(usage.cpu_s(node.pids()) for node in self.nodes)

    def coordinator_cpu_s(self) -> float:
        """Seconds of CPU that the coordinator has used."""
        return usage.cpu_s(self._lab[DESK].pids())


@contextmanager
def running_cluster(model: BenchModel, layout: Layout, placement: Placement) -> Iterator[Cluster]:
    """A cluster of such nodes with the model placed on them."""
    names = NODE_NAMES[: layout.nodes]
    path = model.fetch()
    memory = placement.node_words(layout.nodes, path.stat().st_size)
    with Lab(*names, DESK, rate_mbit=LINK_MBIT) as lab:
        for name in names:
            lab[name].give_model(path)
        started = [
            start_node(lab[name], *memory, device=layout.device, cpu=layout.core_of(node), **placement.environment)
            for node, name in enumerate(names)
        ]
        for node in started:
            await_measured(node)
        words = ["--context", str(model.context_tokens), *placement.words(model, names), *layout.words]
        load_s = _start_coordinator(lab[DESK], path.name, words)
        for machine in lab:
            usage.put_first(machine.pids())
        cluster = Cluster(lab, [lab[name] for name in names], load_s)
        cluster.ask([{"prompt": "Warm up.", "max_tokens": 4}])
        yield cluster


def _start_coordinator(desk: Machine, file: str, options: Sequence[str]) -> float:
    """Starts the coordinator; the seconds from its plan to the model's being ready."""
    words = ["layerline", "coordinator", "--model", file, *options, "--port", str(COORDINATOR_PORT)]
    coordinator = desk.start(words)
    coordinator.wait_for("layers 0 to", deadline_s=START_DEADLINE_S)
    began_s = time.perf_counter()
    coordinator.wait_for("Ready:", deadline_s=LOAD_DEADLINE_S)
    return time.perf_counter() - began_s
