"""Case gaps: how long eight running answers wait for their next token while a long prompt is prefilled beside them."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tests.bench.cluster import Cluster
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair
from tests.bench.prompts import random_ids, refrain
from tests.bench.streams import LEFT
from tests.bench.together import gaps_s, percentile
from tests.lab.commands import LabError

STREAMS = 8
MOST_TOKENS = 1024  # of an answer that is left once the prompt is prefilled


@dataclass(frozen=True, kw_only=True, slots=True)
class Gaps:
    """The gaps between tokens before the prompt came and until it had its first token, and how long that took."""

    p50_before_s: float
    p99_before_s: float
    p99_under_prefill_s: float
    ttft_s: float


def measure(pair: Pair, effort: Effort) -> Figures:
    """The gaps on two nodes; the ratio is of the 99th percentiles, each the median over the repetitions."""
    found = [_gaps(pair.two, effort, repetition) for repetition in range(effort.long_repeats)]
    before_s = median(gaps.p99_before_s for gaps in found)
    under_prefill_s = median(gaps.p99_under_prefill_s for gaps in found)
    figures = {
        "p50_before_ms": 1e3 * median(gaps.p50_before_s for gaps in found),
        "p99_before_ms": 1e3 * before_s,
        "p99_under_prefill_ms": 1e3 * under_prefill_s,
        "prompt_tokens": effort.longest_prompt_tokens,
        "ttft_s": median(gaps.ttft_s for gaps in found),
    }
    row = Row(case="gaps", model=pair.model.key, nodes=2, streams=STREAMS, figures=figures)
    return Figures(rows=(row,), ratios={f"gap_p99_under_prefill.{pair.model.key}": under_prefill_s / before_s})


def _gaps(cluster: Cluster, effort: Effort, repetition: int) -> Gaps:
    seed = f"gaps {repetition}"
    prompt = {"token_ids": random_ids(seed, effort.longest_prompt_tokens), "max_tokens": 1}
    beside = [{"prompt": refrain(seed, stream), "max_tokens": MOST_TOKENS} for stream in range(STREAMS)]
    prefilled, *running = cluster.ask([prompt], beside=beside, lead_tokens=effort.lead_tokens)
    if any(stream.finish_reason != LEFT for stream in running):
        raise LabError("an answer ended while the prompt beside it was prefilled; the load would be another's")
    all_began_s = max(stream.times_s[0] for stream in running)
    before_s = gaps_s(running, all_began_s, prefilled.asked_s)
    under_prefill_s = gaps_s(running, prefilled.asked_s, prefilled.times_s[0])
    return Gaps(
        p50_before_s=percentile(before_s, 50),
        p99_before_s=percentile(before_s, 99),
        p99_under_prefill_s=percentile(under_prefill_s, 99),
        ttft_s=prefilled.ttft_s,
    )
