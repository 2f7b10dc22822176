"""Case http: what HTTP costs beside the SDK's gRPC, on two nodes: the speed of 16 streams, and the first token of one.

Both are asked in turn for the same kind of answers, to prompts that no other one has. A speed is that of all tokens
over the time until the last one, as a chunk over HTTP does not tell how many tokens made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.pair import Pair
from tests.bench.prompts import refrain
from tests.bench.repetitions import in_turn, ratio_of
from tests.bench.streams import Stream

STREAMS = 16
FIRST_TOKENS = 5  # that are asked for one after the other, in each repetition

Ask = Callable[[Sequence[dict[str, Any]]], tuple[Stream, ...]]


def measure(pair: Pair, effort: Effort) -> Figures:
    """The speed of 16 streams over either, and how much later the first token of one comes over HTTP."""
    ways: dict[str, Ask] = {"grpc": pair.two.ask, "http": pair.two.ask_http}
    speeds = in_turn([partial(_tokens_per_s, *way, effort) for way in ways.items()], effort.repeats)
    firsts = in_turn([partial(_first_token_ms, *way) for way in ways.items()], effort.repeats)
    rows = [
        Row(
            case=f"http, by {way}",
            model=pair.model.key,
            nodes=len(pair.two.nodes),
            streams=STREAMS,
            figures={"tokens_per_s": median(speed), "ttft_ms": median(first)},
        )
        for way, speed, first in zip(ways, speeds, firsts, strict=True)
    ]
    by_grpc, by_http = speeds
    first_by_grpc, first_by_http = firsts
    added_ms = [later - sooner for sooner, later in zip(first_by_grpc, first_by_http, strict=True)]
    ratios = {
        f"http_over_grpc16.{pair.model.key}": ratio_of(by_http, by_grpc),
        f"http_ttft_added_ms.{pair.model.key}": median(added_ms),
    }
    return Figures(rows=tuple(rows), ratios=ratios)


def _tokens_per_s(way: str, ask: Ask, effort: Effort, repetition: int) -> float:
    requests = [
        {"prompt": refrain(f"{way} {repetition}", stream), "max_tokens": 2 * effort.answer_tokens, "ignore_eos": True}
        for stream in range(STREAMS)
    ]
    streams = ask(requests)
    began_s = min(stream.asked_s for stream in streams)
    ended_s = max(stream.times_s[-1] for stream in streams)
    return sum(len(stream.token_times_s) for stream in streams) / (ended_s - began_s)


def _first_token_ms(way: str, ask: Ask, repetition: int) -> float:
    """The median over some, each of a prompt of its own."""
    prompts = [refrain(f"first {way} {repetition}", stream) for stream in range(FIRST_TOKENS)]
    return median(1e3 * ask([{"prompt": prompt, "max_tokens": 2}])[0].ttft_s for prompt in prompts)
