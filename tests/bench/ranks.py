"""Case ranks: one stream on a stage that is split over two ranks, against one process that has as many threads."""

from __future__ import annotations

from functools import partial
from statistics import median

from tests.bench.all_reduce import measure_between_processes
from tests.bench.cluster import Cluster
from tests.bench.decode import MESSAGES
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair
from tests.bench.repetitions import in_turn, ratio_of


def measure(pair: Pair, effort: Effort) -> Figures:
    """The speed of one stream on two threads and on two ranks of one thread, and the time of one all-reduce."""
    times = measure_between_processes()
    found = in_turn([partial(_tokens_per_s, cluster, effort) for cluster in pair.clusters], effort.repeats)
    rows = [_row(pair, {"ranks": ranks, "tokens_per_s": median(speeds)}) for ranks, speeds in enumerate(found, start=1)]
    rows.append(_row(pair, {"allreduce_p50_us": times.p50_us, "allreduce_p99_us": times.p99_us}))
    threads, ranks = found
    ratios = {f"tp2_over_threads2.{pair.model.key}": ratio_of(ranks, threads), "allreduce_us": times.p50_us}
    return Figures(rows=tuple(rows), ratios=ratios)


def _tokens_per_s(cluster: Cluster, effort: Effort, repetition: int) -> float:
    (stream,) = cluster.ask([{"messages": MESSAGES, "max_tokens": effort.answer_tokens, "temperature": 0.0}])
    return stream.decode_tokens_per_s


def _row(pair: Pair, figures: dict[str, float]) -> Row:
    return Row(case="ranks", model=pair.model.key, nodes=1, streams=1, figures=figures)
