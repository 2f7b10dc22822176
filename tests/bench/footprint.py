"""Case footprint: how long each cluster took to load, what memory its nodes hold, and what they use when idle."""

from __future__ import annotations

import time

from tests.bench.cluster import Cluster
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair

IDLE_S = 1.0
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
    nodes_s, coordinator_s = cluster.nodes_cpu_s(), cluster.coordinator_cpu_s()
    time.sleep(IDLE_S)
    return {
        "nodes_percent": 100 * (cluster.nodes_cpu_s() - nodes_s) / IDLE_S,
        "coordinator_percent": 100 * (cluster.coordinator_cpu_s() - coordinator_s) / IDLE_S,
    }
