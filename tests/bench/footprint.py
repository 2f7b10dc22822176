"""Case footprint: how long each cluster took to load, what memory its nodes hold, and what they use when idle."""

from __future__ import annotations

import time

from tests.bench.cluster import Cluster
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair

IDLE_S = 5.0  # CPU time is counted in hundredths of a second
MIB = 1 << 20


def measure(pair: Pair, effort: Effort) -> Figures:
    """What the clusters cost while nobody asks them anything."""
    return Figures(rows=tuple(row for cluster in pair.clusters for row in _rows(pair, cluster)))


def _rows(pair: Pair, cluster: Cluster) -> list[Row]:
    key, nodes = pair.model.key, len(cluster.nodes)
    memory = {f"{node}_mib": size_bytes / MIB for node, size_bytes in cluster.worker_bytes().items()}
    return [
        Row(case="load", model=key, nodes=nodes, figures={"load_s": cluster.load_s}),
        Row(case="memory", model=key, nodes=nodes, figures=memory),
        Row(case="idle", model=key, nodes=nodes, figures=_idle(cluster)),
    ]


def _idle(cluster: Cluster) -> dict[str, float]:
    meters = {
        "workers": cluster.workers_cpu_s,
        "workers_and_daemons": cluster.nodes_cpu_s,
        "coordinator": cluster.coordinator_cpu_s,
    }
    before_s = {name: meter() for name, meter in meters.items()}
    time.sleep(IDLE_S)
    return {f"{name}_percent": 100 * (meter() - before_s[name]) / IDLE_S for name, meter in meters.items()}
