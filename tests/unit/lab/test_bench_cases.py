from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from node.ranks.measure import AllReduceTimes
from tests.bench import batch, depth, gaps, masks, over_http, planned, prefill, prefix, ranks
from tests.bench.__main__ import main
from tests.bench.cases import NAMES
from tests.bench.cluster import Cluster
from tests.bench.effort import FULL, QUICK
from tests.bench.models import MODELS
from tests.bench.pair import Pair
from tests.bench.prompts import WORDS, random_ids, refrain, refrain_ids
from tests.bench.simulated import formula, worst
from tests.bench.streams import LEFT, Stream
from tests.lab.commands import LabError
from tests.lab.machine import Machine

Prompt = list[int] | str


class SteadyCluster(Cluster):
    """Every token takes as long as the cluster is told, the first one as long as the prompt has tokens not seen yet."""

    def __init__(self, nodes: int, token_s: float) -> None:
        self.nodes = cast("tuple[Machine, ...]", tuple(range(nodes)))  # only counted
        self.asked: list[Prompt] = []
        self.leaves = LEFT
        self._token_s = token_s

    def ask(
        self, requests: Sequence[dict[str, Any]], beside: Sequence[dict[str, Any]] = (), lead_tokens: int = 0
    ) -> tuple[Stream, ...]:
        running_s = lead_tokens * self._token_s
        answers = [self._answer(request, running_s) for request in requests]
        until_s = max(answer.times_s[-1] for answer in answers)
        tokens = int(until_s / self._token_s)
        left = [self._stream(self._token_s, tokens, self.leaves, 0.0) for _ in beside]
        self.asked += [request["prompt"] for request in beside]
        return (*answers, *left)

    def ask_http(self, requests: Sequence[dict[str, Any]]) -> tuple[Stream, ...]:
        return self.ask(requests)

    def stats(self) -> dict[str, Any]:
        """Of each node: it had a chunk of every prompt so far, and half a second to do with it."""
        stage = {"first_layer": 0, "last_layer": 11, "busy_s": 0.5 * len(self.asked), "steps": len(self.asked)}
        return {"total": {"stages": [stage] * len(self.nodes)}}

    def _answer(self, request: dict[str, Any], asked_s: float) -> Stream:
        prompt: Prompt = next(request[key] for key in ("token_ids", "prompt", "messages") if key in request)
        known = max((common(prompt, other) for other in self.asked), default=0)
        self.asked.append(prompt)
        first_s = max(1, len(prompt) - known) * self._token_s / 100
        return self._stream(first_s, request["max_tokens"], "length", asked_s, len(prompt))

    def _stream(self, first_s: float, tokens: int, reason: str, asked_s: float, prompt_tokens: int = 0) -> Stream:
        times_s = tuple(first_s + place * self._token_s for place in range(tokens))
        return Stream(
            token_times_s=times_s,
            token_ids=(1,) * tokens,
            prompt_tokens=prompt_tokens,
            finish_reason=reason,
            asked_s=asked_s,
        )


def common(one: Prompt, other: Prompt) -> int:
    """How many tokens, or letters, both begin with."""
    length = min(len(one), len(other))
    return next((place for place in range(length) if one[place] != other[place]), length)


@pytest.fixture
def pair() -> Pair:
    """Two nodes are twice as fast as one."""
    return Pair(model=MODELS["qwen"], one=SteadyCluster(1, 0.1), two=SteadyCluster(2, 0.05))


def test_the_batch_case_adds_the_streams_up(pair: Pair) -> None:
    found = batch.measure(pair, QUICK)
    assert found.ratios == {
        "step16_over_step8.qwen": pytest.approx(1.0, rel=0.05),
        "decode16_2n_over_1n.qwen": pytest.approx(2.0, rel=0.05),
        "decode16_2n_over_best.qwen": pytest.approx(2.0, rel=0.05),
        "decode32_2n_over_decode16_1n.qwen": pytest.approx(4.0, rel=0.05),
    }
    assert [(row.nodes, row.streams) for row in found.rows] == [(1, 8), (1, 16), (2, 16), (2, 32)]


def test_the_prefill_cases_ask_for_prompts_that_share_nothing(pair: Pair) -> None:
    assert prefill.measure(pair, FULL).ratios == {"prefill512_2n_over_1n.qwen": pytest.approx(2.0)}
    assert prefill.measure_long(pair, FULL).ratios == {
        "prefill2048_2n_over_1n.qwen": pytest.approx(2.0),
        "prefill2048_2n_over_best.qwen": pytest.approx((0.5 + 0.5) / (2048 * 0.05 / 100)),
    }
    assert isinstance(pair.two, SteadyCluster)
    assert [len(prompt) for prompt in pair.two.asked] == [512] * FULL.repeats + [2048] * 2 * FULL.long_repeats
    assert len({prompt[0] for prompt in pair.two.asked}) == FULL.repeats + 2 * FULL.long_repeats


@pytest.mark.parametrize(
    ("busy_s", "chunks", "seconds"), [([4, 4], 4, 5), ([4, 2], 4, 4.5), ([1, 8], 2, 8.5), ([3], 7, 3)]
)
def test_the_best_of_a_pipeline(busy_s: list[float], chunks: int, seconds: float) -> None:
    assert prefill.best_s(busy_s, chunks) == pytest.approx(seconds)


def test_the_planned_case_says_how_the_planner_cut(pair: Pair) -> None:
    found = planned.measure(pair, QUICK)
    assert found.rows[0].figures["first_node_layers"] == 12
    assert found.ratios == {
        "planned_decode16_2n_over_1n.qwen": pytest.approx(2.0, rel=0.05),
        "planned_prefill2048_2n_over_1n.qwen": pytest.approx(2.0),
    }


def test_the_http_case_compares_both_ways_and_asks_nothing_twice(pair: Pair) -> None:
    found = over_http.measure(pair, QUICK)
    assert found.ratios == {
        "http_over_grpc16.qwen": pytest.approx(1.0, rel=0.05),
        "http_ttft_added_ms.qwen": pytest.approx(0.0, abs=50.0),
    }
    assert isinstance(pair.two, SteadyCluster)
    assert len(set(map(str, pair.two.asked))) == len(pair.two.asked) == QUICK.repeats * 2 * (16 + 5)


def test_the_masks_case_compares_held_answers_with_free_ones(pair: Pair) -> None:
    assert masks.measure(pair, QUICK).ratios == {"masked16_over_free16.qwen": pytest.approx(1.0, rel=0.05)}


def test_the_prefix_case_asks_twice_with_one_prefix(pair: Pair) -> None:
    ratios = prefix.measure(pair, FULL).ratios
    assert ratios == {"prefix_ttft.qwen": pytest.approx(16 / (2048 + 16), rel=0.01)}


def test_the_gaps_case_compares_gaps_before_and_while(pair: Pair) -> None:
    found = gaps.measure(pair, QUICK)
    assert found.ratios == {"gap_p99_under_prefill.qwen": pytest.approx(1.0)}
    assert found.rows[0].streams == 8
    assert isinstance(pair.two, SteadyCluster)
    pair.two.leaves = "length"
    with pytest.raises(LabError, match="ended while"):
        gaps.measure(pair, QUICK)


def test_the_ranks_case_compares_a_stage_split_with_one_whole(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "measure_between_processes", lambda: AllReduceTimes(p50_us=20.0, p99_us=30.0))
    ratios = ranks.measure(pair, QUICK).ratios
    assert ratios == {"tp2_over_threads2.qwen": pytest.approx(2.0), "allreduce_us": 20.0}


def test_the_depth_case_decodes_after_both_prompts(pair: Pair) -> None:
    assert depth.measure(pair, FULL).ratios == {"decode_4096_over_128.qwen": pytest.approx(1.0)}
    assert isinstance(pair.one, SteadyCluster)
    assert {len(prompt) for prompt in pair.one.asked} == {128, 4096}


@pytest.mark.parametrize(("chunks", "share"), [(4, 2 / 6), (16, 2 / 18), (64, 2 / 66)])
def test_the_bubble_of_filling_and_draining(chunks: int, share: float) -> None:
    assert formula(chunks, 3) == pytest.approx(share)
    assert formula(chunks, 1) == 0


@pytest.mark.parametrize(("ratios", "farthest"), [([1.1, 0.95, 1.0], 1.1), ([1.1, 0.85, 1.0], 0.85), ([1.0], 1.0)])
def test_the_worst_is_the_one_farthest_from_one(ratios: list[float], farthest: float) -> None:
    assert worst(ratios) == farthest


def test_prompts_share_no_beginning() -> None:
    prompts = [refrain(f"a {repetition}", stream) for repetition in range(3) for stream in range(len(WORDS))]
    assert len({prompt.split()[0] for prompt in prompts[: len(WORDS)]}) == len(WORDS)
    assert len(set(prompts)) == len(prompts)
    assert random_ids("a", 64) == random_ids("a", 64) != random_ids("b", 64)
    assert len(set(refrain_ids("a", 4096))) <= 4


@pytest.mark.parametrize(("option", "known"), [("--only", NAMES), ("--models", MODELS)])
def test_an_unknown_case_or_model_is_refused(option: str, known: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(main, [option, f"{next(iter(known))},walk"])
    assert refused.exit_code == 2
    assert all(name in refused.output for name in ("walk", *known))


@pytest.mark.system
@pytest.mark.slow
def test_three_sleeping_nodes_are_compared_with_one(tmp_path: Path) -> None:
    """Real processes; how fast they are is not looked at."""
    out = tmp_path / "out.json"
    done = CliRunner().invoke(main, ["--only", "simulated", "--quick", "--json", str(out)])
    assert done.exit_code == 0
    ratios = json.loads(out.read_text())["ratios"]
    assert set(ratios) == {"sim_prefill_3n_over_1n", "sim_decode24_3n_over_1n", "sim_bubble_over_formula"}
    assert all(ratio > 0 for ratio in ratios.values())
