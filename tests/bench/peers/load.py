"""Case load: from asking for a model to its being ready, on a node of one core that has never seen its file.

The file is in the system's memory, and nothing is known of it: no index, no card. The coordinator is told the node's
address, and its own start is not counted.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

from tests.bench import usage
from tests.bench.cluster import DESK, LINK_MBIT, LOAD_DEADLINE_S, NODE_NAMES, START_DEADLINE_S
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.models import BenchModel
from tests.bench.peers.first import run_first
from tests.bench.repetitions import in_turn, ratio_of
from tests.lab.lab import Lab
from tests.lab.nodes import await_measured, start_node

NODE_PORT = 7355
CORE = 0
LARGEST = "qwen"


def measure(model: BenchModel, case: str, effort: Effort) -> Figures:
    """Both times. The ratio without a model's name is the largest one's, in whose time a fixed part weighs least."""
    path = model.fetch()
    loads_s, reads_s = in_turn([partial(_load_s, model, path), partial(_read_s, path)], effort.long_repeats)
    figures = {"load_s": median(loads_s), "read_and_hash_s": median(reads_s)}
    ratio = ratio_of(loads_s, reads_s)
    ratios = {f"load_over_read.{model.key}": ratio} | ({"load_over_read": ratio} if model.key == LARGEST else {})
    return Figures(rows=(Row(case=case, model=model.key, nodes=1, figures=figures),), ratios=ratios)


def _load_s(model: BenchModel, path: Path, repetition: int) -> float:
    name = NODE_NAMES[0]
    with Lab(name, DESK, rate_mbit=LINK_MBIT) as lab:
        machine, desk = lab[name], lab[DESK]
        machine.give_model(path)
        await_measured(start_node(machine, cpu=CORE))
        _read_once(lab, path)
        usage.put_first(machine.pids())
        words = ["layerline", "coordinator", "--model", path.name, "--context", str(model.context_tokens)]
        coordinator = desk.start([*words, "--no-mdns", "--node", f"{machine.ipv4}:{NODE_PORT}"])
        coordinator.wait_for("Looking for nodes", deadline_s=START_DEADLINE_S)
        began_s = time.perf_counter()
        coordinator.wait_for("Ready:", deadline_s=LOAD_DEADLINE_S)
        return time.perf_counter() - began_s


def _read_s(path: Path, repetition: int) -> float:
    with Lab(NODE_NAMES[0]) as lab:
        _read_once(lab, path)
        return _read_once(lab, path)


def _read_once(lab: Lab, path: Path) -> float:
    words = [sys.executable, "-m", "tests.bench.peers.file_read", str(path)]
    return float(run_first(lab[NODE_NAMES[0]], words, [CORE]))
