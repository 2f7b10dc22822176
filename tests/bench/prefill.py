"""Cases prefill and long_prefill: the tokens per second of one prompt, until its first token is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from tests.bench.cluster import Cluster
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair
from tests.bench.prompts import random_ids
from tests.bench.repetitions import in_turn, ratio_of


def measure(pair: Pair, effort: Effort) -> Figures:
    """The speed of a prompt on one node and on two."""
    tokens = effort.prompt_tokens
    return _measured(pair, tokens, effort.repeats, case="prefill", ratio=f"prefill{tokens}_2n_over_1n")


def measure_long(pair: Pair, effort: Effort) -> Figures:
    """The same for a prompt of many chunks, and what two nodes are off the best that their own times allow."""
    tokens = effort.long_prompt_tokens
    figures = _measured(pair, tokens, effort.long_repeats, case="long_prefill", ratio="prefill2048_2n_over_1n")
    shares = [_share_of_best(pair.two, tokens, effort.long_repeats + more) for more in range(effort.long_repeats)]
    return replace(figures, ratios={**figures.ratios, f"prefill2048_2n_over_best.{pair.model.key}": median(shares)})


def _share_of_best(cluster: Cluster, prompt_tokens: int, repetition: int) -> float:
    """The least time in which the stages could have done what they computed for a prompt, over the time that it took.

    The slower stage never waits but for the first chunk, or is followed by the last one, on the other stage.
    """
    before = cluster.stats()["total"]["stages"]
    speed = tokens_per_s(cluster, prompt_tokens, repetition)
    after = cluster.stats()["total"]["stages"]
    busy_s = [now["busy_s"] - then["busy_s"] for now, then in zip(after, before, strict=True)]
    chunks = after[0]["steps"] - before[0]["steps"]
    return best_s(busy_s, chunks) / (prompt_tokens / speed)


def best_s(busy_s: Sequence[float], chunks: int) -> float:
    """The least time of a pipeline whose stages are busy for so long with so many chunks, all alike."""
    slowest_s = max(busy_s)
    return slowest_s + (sum(busy_s) - slowest_s) / chunks


def _measured(pair: Pair, prompt_tokens: int, repeats: int, *, case: str, ratio: str) -> Figures:
    found = in_turn([partial(tokens_per_s, cluster, prompt_tokens) for cluster in pair.clusters], repeats)
    rows = [
        Row(
            case=case,
            model=pair.model.key,
            nodes=nodes,
            streams=1,
            figures={"prompt_tokens": prompt_tokens, "tokens_per_s": median(speeds)},
        )
        for nodes, speeds in enumerate(found, start=1)
    ]
    return Figures(rows=tuple(rows), ratios={f"{ratio}.{pair.model.key}": ratio_of(found[1], found[0])})


def tokens_per_s(cluster: Cluster, prompt_tokens: int, repetition: int) -> float:
    """The speed of one prompt of so many tokens."""
    # Another prompt at each repetition, the same for both clusters: none may be remembered.
    token_ids = random_ids(f"prefill {prompt_tokens} {repetition}", prompt_tokens)
    (stream,) = cluster.ask([{"token_ids": token_ids, "max_tokens": 1, "temperature": 0.0}])
    return stream.prompt_tokens / stream.ttft_s
