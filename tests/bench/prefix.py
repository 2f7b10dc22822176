"""Case prefix: the time to the first token of a second request that begins with the same long prefix."""

from __future__ import annotations

from statistics import median

from tests.bench.cluster import Cluster
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair
from tests.bench.prompts import random_ids
from tests.bench.repetitions import ratio_of

OWN_TOKENS = 16  # of each request, after the prefix


def measure(pair: Pair, effort: Effort) -> Figures:
    """Both times on two nodes."""
    found = [_ttfts_s(pair.two, effort, repetition) for repetition in range(effort.long_repeats)]
    first_s, second_s = [first for first, _ in found], [second for _, second in found]
    figures = {
        "prompt_tokens": effort.long_prompt_tokens + OWN_TOKENS,
        "first_ttft_s": median(first_s),
        "second_ttft_s": median(second_s),
    }
    row = Row(case="prefix", model=pair.model.key, nodes=2, streams=1, figures=figures)
    return Figures(rows=(row,), ratios={f"prefix_ttft.{pair.model.key}": ratio_of(second_s, first_s)})


def _ttfts_s(cluster: Cluster, effort: Effort, repetition: int) -> tuple[float, float]:
    prefix = random_ids(f"prefix {repetition}", effort.long_prompt_tokens)
    first_s, second_s = (
        cluster.ask([{"token_ids": prefix + random_ids(f"{own} {repetition}", OWN_TOKENS), "max_tokens": 1}])[0].ttft_s
        for own in ("first", "second")
    )
    return first_s, second_s
