"""Case masks: what it costs to hold 16 answers to a structure, on two nodes: each token is drawn by a mask of its
own.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair
from tests.bench.prompts import refrain
from tests.bench.repetitions import in_turn, ratio_of
from tests.bench.together import tokens_per_s_together

STREAMS = 16
KINDS: dict[str, dict[str, Any]] = {
    "free": {"ignore_eos": True},
    "masked": {"structure": {"type": "string", "minLength": 100_000}},
}
"""A string of JSON without an end: any letters may come, and nothing has to."""


def measure(pair: Pair, effort: Effort) -> Figures:
    """The speed of 16 streams that are held to a structure over that of 16 free ones."""
    speeds = in_turn([partial(_tokens_per_s, pair, effort, kind) for kind in KINDS], effort.repeats)
    rows = [
        Row(
            case=f"masks, {kind}",
            model=pair.model.key,
            nodes=len(pair.two.nodes),
            streams=STREAMS,
            figures={"tokens_per_s": median(speed)},
        )
        for kind, speed in zip(KINDS, speeds, strict=True)
    ]
    free, masked = speeds
    return Figures(rows=tuple(rows), ratios={f"masked16_over_free16.{pair.model.key}": ratio_of(masked, free)})


def _tokens_per_s(pair: Pair, effort: Effort, kind: str, repetition: int) -> float:
    requests = [
        {"prompt": refrain(f"{kind} {repetition}", stream), "max_tokens": 2 * effort.answer_tokens, **KINDS[kind]}
        for stream in range(STREAMS)
    ]
    return tokens_per_s_together(pair.two.ask(requests))
