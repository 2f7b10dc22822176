"""Case losses: how long a user is without a token when a worker, a rank, a node or a cable goes.

A tiny model, so that the time is that of noticing, of starting workers and of building the pipeline, not of loading.
Needs no model from outside. Each loss is made in the middle of an answer, on clusters of their own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench.cluster import COORDINATOR_PORT, DESK, LINK_MBIT, NODE_NAMES
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.layout import TWO_NODES, TWO_RANKS, Layout
from tests.fakes.model_files import TinyModel, write_folder
from tests.lab.lab import Lab
from tests.lab.machine import Machine
from tests.lab.nodes import spare_measuring, start_node
from tests.lab.process import Process, wait_until

MODEL = "tiny"
WORKER = "node.worker"
LAYERS = 4
CONTEXT_TOKENS = 4096
READY_DEADLINE_S = 60.0
LOSS_DEADLINE_S = 60.0
SILENCE_S = 0.2  # a pause of tokens that is a loss and no chance


@dataclass(kw_only=True, slots=True)
class Cluster:
    """The tiny model in service, and someone who asks for one answer after the other."""

    lab: Lab
    daemons: dict[str, Process]
    asker: Process

    def workers(self, node: str) -> list[int]:
        """The process ids of the node's workers, rank 0 first."""
        return sorted(worker.pid for worker in self.daemons[node].children(WORKER))


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """What goes in mid-answer. `make` makes it and returns what ends it."""

    name: str
    make: Callable[[Cluster], Callable[[], None]]
    layout: Layout = TWO_NODES


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """Seconds from a loss until the first error, if there was one, and until the next token after a silence."""

    error_s: float | None
    token_s: float


def signalled(number: signal.Signals, node: str, rank: int = 0) -> Callable[[Cluster], Callable[[], None]]:
    """Sends the signal to a worker."""

    def make(cluster: Cluster) -> Callable[[], None]:
        os.kill(cluster.workers(node)[rank], number)
        return _nothing

    return make


def frozen_machine(cluster: Cluster) -> Callable[[], None]:
    """Stops all that runs on b until an error was told."""
    stack = ExitStack()
    stack.enter_context(cluster.lab["b"].frozen())
    return stack.close


def unplugged(cluster: Cluster) -> Callable[[], None]:
    """Takes the cable out of b until an error was told."""
    cluster.lab["b"].unplug()
    return cluster.lab["b"].plug


LOSSES = (
    Loss(name="killed_worker_first", make=signalled(signal.SIGKILL, "a")),
    Loss(name="killed_worker_last", make=signalled(signal.SIGKILL, "b")),
    Loss(name="frozen_worker_first", make=signalled(signal.SIGSTOP, "a")),
    Loss(name="frozen_worker_last", make=signalled(signal.SIGSTOP, "b")),
    Loss(name="killed_rank", make=signalled(signal.SIGKILL, "a", rank=1), layout=TWO_RANKS),
    Loss(name="frozen_rank", make=signalled(signal.SIGSTOP, "a", rank=1), layout=TWO_RANKS),
    Loss(name="frozen_machine", make=frozen_machine),
    Loss(name="unplugged_cable", make=unplugged),
)


def measure(effort: Effort) -> Figures:
    """Each loss some times, on a cluster that was whole and warm before."""
    rows = []
    for loss in LOSSES:
        found = [_silence(loss) for _ in range(effort.sleep_repeats)]
        errors_s = [silence.error_s for silence in found if silence.error_s is not None]
        figures = {"error_s": median(errors_s)} if errors_s else {}
        figures |= {"token_s": median(silence.token_s for silence in found)}
        rows.append(Row(case=loss.name, model=MODEL, nodes=loss.layout.nodes, streams=1, figures=figures))
    return Figures(rows=tuple(rows))


def _silence(loss: Loss) -> Silence:
    with _running(loss.layout) as cluster:
        cluster.asker.wait_for_output("begun", deadline_s=READY_DEADLINE_S)
        lost_s = time.monotonic()
        mend = loss.make(cluster)
        try:
            wait_until(lambda: bool(_events(cluster, lost_s)), f"end of {loss.name}", deadline_s=LOSS_DEADLINE_S)
        finally:
            mend()
        wait_until(lambda: "token" in _events(cluster, lost_s), "next token", deadline_s=LOSS_DEADLINE_S)
        events = _events(cluster, lost_s)
        return Silence(error_s=events.get("error"), token_s=events["token"])


def _events(cluster: Cluster, lost_s: float) -> dict[str, float]:
    """When the asker saw the first of each kind after the loss, in seconds since."""
    events: dict[str, float] = {}
    for line in cluster.asker.stdout.text.split("\n")[:-1]:
        time_s, event, *_ = line.split(" ", 2)
        if float(time_s) > lost_s:
            events.setdefault(event, float(time_s) - lost_s)
    return events


@contextmanager
def _running(layout: Layout) -> Iterator[Cluster]:
    """The tiny model on the layout's nodes, and the asker at work."""
    names = NODE_NAMES[: layout.nodes]
    with tempfile.TemporaryDirectory() as folder, Lab(*names, DESK, rate_mbit=LINK_MBIT) as lab:
        path = write_folder(Path(folder) / MODEL, TinyModel(layers=LAYERS, context_tokens=CONTEXT_TOKENS))
        daemons = {}
        for name in names:
            lab[name].give_model(path)
            spare_measuring(lab[name])
            daemons[name] = start_node(lab[name], device=layout.device)
        _serve(lab[DESK], layout)
        yield Cluster(lab=lab, daemons=daemons, asker=_asker(lab[DESK]))


def _serve(desk: Machine, layout: Layout) -> None:
    words = ["layerline", "coordinator", "--model", MODEL, "--port", str(COORDINATOR_PORT), *layout.words]
    if layout.nodes == 2:
        words += ["--layers", f"a=0-{LAYERS // 2 - 1},b={LAYERS // 2}-{LAYERS - 1}"]
    desk.start(words).wait_for("Ready:", deadline_s=READY_DEADLINE_S)


def _asker(desk: Machine) -> Process:
    request = {"prompt": "hello world", "max_tokens": CONTEXT_TOKENS - 64}
    asked = {"address": f"127.0.0.1:{COORDINATOR_PORT}", "request": request, "silence_s": SILENCE_S}
    return desk.start([sys.executable, "-m", "tests.bench.steady", json.dumps(asked)])


def _nothing() -> None:
    """A worker that was lost needs no mending."""
