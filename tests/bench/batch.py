"""Case batch: many answers at the same time, on one node and on two; twice as many on two use each machine alike.

Two nodes compute 16 streams as two steps of 8, each of which takes either node half of what one node takes for 8. So
the most that they can be faster is what a node's step of 16 rows takes over one of 8.
"""

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
    """The speed of 8 and 16 streams on one node, and of 16 and 32 on two."""
    asked = ((pair.one, STREAMS // 2), (pair.one, STREAMS), (pair.two, STREAMS), (pair.two, 2 * STREAMS))
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
    half, one, two, twice = found
    step_ratios = [2 * slow / fast for slow, fast in zip(half, one, strict=True)]
    gains = [fast / slow for slow, fast in zip(one, two, strict=True)]
    ratios = {
        f"step16_over_step8.{pair.model.key}": median(step_ratios),
        f"decode16_2n_over_1n.{pair.model.key}": median(gains),
        f"decode16_2n_over_best.{pair.model.key}": ratio_of(gains, step_ratios),
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
