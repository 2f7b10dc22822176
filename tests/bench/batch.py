"""Case batch: many answers at the same time, on one node and on two; twice as many on two use each machine alike."""

from __future__ import annotations

from functools import partial
from statistics import median

from tests.bench.cluster import Cluster
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair
from tests.bench.prompts import refrain
from tests.bench.repetitions import in_turn, ratio_of
from tests.bench.together import tokens_per_s_together

STREAMS = 16


def measure(pair: Pair, effort: Effort) -> Figures:
    """The speed of 16 streams on one node and on two, and of 32 on two."""
    asked = ((pair.one, STREAMS), (pair.two, STREAMS), (pair.two, 2 * STREAMS))
    measures = [partial(tokens_per_s, cluster, streams, effort) for cluster, streams in asked]
    found = in_turn(measures, effort.long_repeats)
    rows = [
        Row(
            case="batch",
            model=pair.model.key,
            nodes=len(cluster.nodes),
            streams=streams,
            figures={"tokens_per_s": median(speeds)},
        )
        for (cluster, streams), speeds in zip(asked, found, strict=True)
    ]
    one, two, twice = found
    ratios = {
        f"decode16_2n_over_1n.{pair.model.key}": ratio_of(two, one),
        f"decode32_2n_over_decode16_1n.{pair.model.key}": ratio_of(twice, one),
    }
    return Figures(rows=tuple(rows), ratios=ratios)


def tokens_per_s(cluster: Cluster, streams: int, effort: Effort, repetition: int) -> float:
    """The speed of so many streams together."""
    requests = [
        {"prompt": refrain(f"batch {streams} {repetition}", stream), "max_tokens": 2 * effort.answer_tokens}
        for stream in range(streams)
    ]
    return tokens_per_s_together(cluster.ask(requests))
