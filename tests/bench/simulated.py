"""Case simulated: how busy the scheduler keeps three nodes, whatever they compute; the stages sleep.

Real are the engine, the scheduler, the workers' side of the ring and gRPC between processes on loopback. So what is
lost against an ideal pipeline is lost by these, and not by cores, caches or memory that machines in one machine share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.repetitions import in_turn, ratio_of
from tests.bench.sleeping_cluster import Prefilled, RowTimes, SleepingCluster, sleeping_cluster
from tests.bench.together import tokens_per_s_together

MODEL = "sleeping"
NODES = 3
MOST_CHUNKS = 64
CHUNKS = (4, 16, MOST_CHUNKS)
STREAMS = 24
# A third takes 640 ms for a chunk (256 tokens in half of Qwen2.5-0.5B take 900 ms on a core without matrix units) and
# 20 ms for 8 answers. Beside much shorter chunks the 1 to 2 ms between two steps of a stage would count as bubbles.
ROW_TIMES_S = RowTimes(prompt_s=0.12, decode_s=0.0075)
Done = TypeVar("Done")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Both:
    """One node and three nodes, and the event loop that they live on."""

    runner: asyncio.Runner
    one: SleepingCluster
    three: SleepingCluster

    def prefill(self, cluster: SleepingCluster, chunks: int) -> Callable[[int], Prefilled]:
        """What measures the prefill of a prompt of so many chunks."""
        return lambda repetition: self.runner.run(cluster.prefill(chunks))

    def decode(self, cluster: SleepingCluster, effort: Effort) -> Callable[[int], float]:
        """What measures the tokens per second of all streams."""

        def tokens_per_s(repetition: int) -> float:
            asking = cluster.ask(STREAMS, prompt_tokens=1, max_tokens=effort.answer_tokens)
            return tokens_per_s_together(self.runner.run(asking))

        return tokens_per_s


def measure(effort: Effort) -> Figures:
    """Prefill and decode of three nodes over those of one, and the bubbles in the prefill of three."""
    times = RowTimes(
        prompt_s=ROW_TIMES_S.prompt_s * effort.sleep_scale, decode_s=ROW_TIMES_S.decode_s * effort.sleep_scale
    )
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            one, three = (runner.run(stack.enter_async_context(sleeping_cluster(nodes, times))) for nodes in (1, NODES))
            both = _Both(runner=runner, one=one, three=three)
            return _joined(_prefill(both, effort), _decode(both, effort))
        finally:
            runner.run(stack.aclose())


def formula(chunks: int, stages: int) -> float:
    """The bubble share of a pipeline that fills and drains: each stage is idle for the time of stages - 1 chunks."""
    return (stages - 1) / (chunks + stages - 1)


def worst(ratios: list[float]) -> float:
    """The one that is farthest from 1."""
    return max(ratios, key=lambda ratio: abs(ratio - 1))


def _prefill(both: _Both, effort: Effort) -> Figures:
    measures = [both.prefill(both.one, MOST_CHUNKS), *(both.prefill(both.three, chunks) for chunks in CHUNKS)]
    one, *threes = in_turn(measures, effort.sleep_repeats)
    speeds = [[prefilled.tokens_per_s for prefilled in found] for found in (one, threes[-1])]
    shares = [median(prefilled.bubble_share for prefilled in found) for found in threes]
    over_formula = [share / formula(chunks, NODES) for chunks, share in zip(CHUNKS, shares, strict=True)]
    rows = [
        _row("sim_prefill", nodes, 1, {"chunks": MOST_CHUNKS, "tokens_per_s": median(found)})
        for nodes, found in zip((1, NODES), speeds, strict=True)
    ]
    rows += [
        _row("sim_bubble", NODES, 1, {"chunks": n, "percent": 100 * share, "formula_percent": 100 * formula(n, NODES)})
        for n, share in zip(CHUNKS, shares, strict=True)
    ]
    ratios = {
        "sim_prefill_3n_over_1n": ratio_of(speeds[1], speeds[0]),
        "sim_bubble_over_formula": worst(over_formula),
    }
    return Figures(rows=tuple(rows), ratios=ratios)


def _decode(both: _Both, effort: Effort) -> Figures:
    one, three = in_turn([both.decode(both.one, effort), both.decode(both.three, effort)], effort.sleep_repeats)
    rows = [
        _row("sim_decode", nodes, STREAMS, {"tokens_per_s": median(found)})
        for nodes, found in zip((1, NODES), (one, three), strict=True)
    ]
    return Figures(rows=tuple(rows), ratios={"sim_decode24_3n_over_1n": ratio_of(three, one)})


def _row(case: str, nodes: int, streams: int, figures: dict[str, float]) -> Row:
    return Row(case=case, model=MODEL, nodes=nodes, streams=streams, figures=figures)


def _joined(first: Figures, second: Figures) -> Figures:
    return Figures(rows=first.rows + second.rows, ratios=first.ratios | second.ratios)
