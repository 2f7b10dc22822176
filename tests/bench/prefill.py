"""Case prefill: the tokens per second of one long prompt, until its first token is there."""

from __future__ import annotations

import random
from functools import partial
from statistics import median

from tests.bench.cluster import Cluster
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair
from tests.bench.repetitions import in_turn, ratio_of

TOKEN_IDS = range(1_000, 40_000)  # plain words in both vocabularies


def measure(pair: Pair, effort: Effort) -> Figures:
    """The speed of a prompt on one node and on two."""
    found = in_turn([partial(_tokens_per_s, cluster, effort) for cluster in pair.clusters], effort.repeats)
    rows = [
        Row(
            case="prefill",
            model=pair.model.key,
            nodes=nodes,
            streams=1,
            figures={"prompt_tokens": effort.prompt_tokens, "tokens_per_s": median(speeds)},
        )
        for nodes, speeds in enumerate(found, start=1)
    ]
    name = f"prefill{effort.prompt_tokens}_2n_over_1n.{pair.model.key}"
    return Figures(rows=tuple(rows), ratios={name: ratio_of(found[1], found[0])})


def _tokens_per_s(cluster: Cluster, effort: Effort, repetition: int) -> float:
    # Another prompt at each repetition, the same for both clusters: none may be remembered.
    token_ids = random.Random(repetition).choices(TOKEN_IDS, k=effort.prompt_tokens)
    (stream,) = cluster.ask([{"token_ids": token_ids, "max_tokens": 1, "temperature": 0.0}])
    return stream.prompt_tokens / stream.ttft_s
