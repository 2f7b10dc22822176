"""Case decode: one stream's tokens per second, and how long its token is under way between those who compute it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from tests.bench.cluster import Cluster
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair
from tests.bench.repetitions import in_turn, ratio_of
from tests.lab.commands import LabError

MESSAGES = [{"role": "user", "content": "Write a long story about a lighthouse keeper and the sea."}]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoded:
    """One answer: its speed, how many cores the nodes kept busy meanwhile, and the time of a hop."""

    tokens_per_s: float
    cores_busy: float
    hop_us: float


def measure(pair: Pair, effort: Effort) -> Figures:
    """The speed of one stream on one node and on two."""
    found = in_turn([partial(decoded, cluster, effort) for cluster in pair.clusters], effort.repeats)
    speeds = [[answer.tokens_per_s for answer in answers] for answers in found]
    rows = [_row(pair, nodes, answers) for nodes, answers in enumerate(found, start=1)]
    return Figures(rows=tuple(rows), ratios={f"decode_2n_over_1n.{pair.model.key}": ratio_of(speeds[1], speeds[0])})


def decoded(cluster: Cluster, effort: Effort, repetition: int) -> Decoded:
    """One answer, whose prompt is cached after the first."""
    before_s = cluster.nodes_cpu_s()
    (stream,) = cluster.ask([{"messages": MESSAGES, "max_tokens": effort.answer_tokens, "temperature": 0.0}])
    if stream.finish_reason != "length":
        raise LabError(f"the model stopped after {len(stream.token_ids)} tokens; its speed would be another's")
    busy_s = cluster.nodes_cpu_s() - before_s
    return Decoded(
        tokens_per_s=stream.decode_tokens_per_s,
        cores_busy=busy_s / stream.token_times_s[-1],
        hop_us=hop_us(cluster.stats()["recent"]),
    )


def _row(pair: Pair, nodes: int, answers: list[Decoded]) -> Row:
    figures = {
        "tokens_per_s": median(answer.tokens_per_s for answer in answers),
        "cores_busy": median(answer.cores_busy for answer in answers),
        "us_per_hop": median(answer.hop_us for answer in answers),
    }
    return Row(case="decode", model=pair.model.key, nodes=nodes, streams=1, figures=figures)


def hop_us(period: dict[str, Any]) -> float:
    """Microseconds from one that computes or coordinates to the next: what is left of a step, over all its hops.

    With one stream there is one step at a time, so nothing of it is waiting in line.
    """
    steps = period["steps"]
    computing_s = sum(stage["busy_s"] for stage in period["stages"])
    return float(1e6 * (period["step_time"]["total_s"] - computing_s) / steps / len(period["links"]))
