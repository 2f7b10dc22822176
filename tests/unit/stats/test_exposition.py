"""The text as a strict reader of Prometheus's format sees it."""

from __future__ import annotations

import math
import re
from collections import defaultdict

import pytest

from coordinator.stats.exposition import exposition
from layerline.stats_report import SlotStats
from tests.fakes.stats_report import expert_stats, period_stats, stage_stats, stats_report

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\})? (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"')
SUFFIXES = {"summary": ("", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


def labels(**pairs: str) -> frozenset[tuple[str, str]]:
    """The labels of a sample."""
    return frozenset(pairs.items())


class Parsed:
    """Kinds by metric, and values by name and labels; refuses what the format does not allow."""

    def __init__(self, data: bytes) -> None:
        text = data.decode()
        assert text.endswith("\n")
        self.kinds: dict[str, str] = {}
        self.values: dict[str, dict[frozenset[tuple[str, str]], float]] = defaultdict(dict)
        current = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                current = line.split(" ")[2]
                assert current not in self.kinds, "a metric comes twice"
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name == current
                self.kinds[name] = kind
            else:
                self._sample(line, current)

    def _sample(self, line: str, current: str) -> None:
        match = SAMPLE.fullmatch(line)
        assert match, line
        name, given, value = match.groups()
        assert name in {current + suffix for suffix in SUFFIXES[self.kinds[current]]}
        key = frozenset(LABEL.findall(given or ""))
        assert key not in self.values[name], "a sample comes twice"
        self.values[name][key] = float(value)


def test_every_number_of_a_report_is_there_under_its_name() -> None:
    parsed = Parsed(exposition(stats_report()))
    attic, cellar = labels(stage="0", node="attic"), labels(stage="1", node="cellar")
    between = labels(link="1", sender="attic", receiver="cellar")
    values = parsed.values
    assert values["layerline_model_loaded"] == {labels(): 1.0}
    assert values["layerline_model_info"] == {labels(model="tiny"): 1.0}
    assert values["layerline_stage_busy_seconds_total"] == {attic: 5.0, cellar: 5.0}
    assert values["layerline_stage_waiting_seconds_total"][attic] == 5.0
    assert values["layerline_stage_sending_seconds_total"][attic] == 0.25
    assert values["layerline_stage_bubble_ratio"][cellar] == 0.5
    assert values["layerline_stage_step_seconds"][labels(stage="0", node="attic", quantile="0.99")] == 0.05
    assert values["layerline_stage_step_seconds_sum"][attic] == 5.0
    assert values["layerline_stage_step_seconds_count"][attic] == 100
    assert values["layerline_link_payload_bytes_total"][between] == 3 << 20
    assert values["layerline_link_wire_seconds"][between] == pytest.approx(0.01)
    assert values["layerline_pages"] == {labels(use="used"): 50, labels(use="cached"): 20, labels(use="free"): 30}
    assert "layerline_slots" not in values
    assert values["layerline_prefix_hit_tokens_total"] == {labels(): 250}
    assert values["layerline_sequences"][labels(state="decoding")] == 4
    assert values["layerline_requests_total"][labels(reason="refused")] == 1
    assert values["layerline_rows_total"] == {labels(kind="prompt"): 300, labels(kind="decode"): 100}
    assert values["layerline_tokens_total"] == {labels(): 7200}
    assert values["layerline_request_first_token_seconds"][labels(quantile="0.5")] == 0.5


def test_names_follow_the_conventions() -> None:
    for name, kind in Parsed(exposition(stats_report())).kinds.items():
        assert name.startswith("layerline_")
        assert name.endswith("_total") == (kind == "counter")
        assert not re.search(r"_(ms|us|milliseconds|kib|mib)(_|$)", name)


def test_without_a_model_it_says_so_and_no_more() -> None:
    assert Parsed(exposition(None)).values == {"layerline_model_loaded": {labels(): 0.0}}


def test_a_quantile_of_nothing_is_not_a_number() -> None:
    nothing = period_stats().gap_time.__class__(count=0, total_s=0.0, mean_s=0.0, p50_s=0.0, p99_s=0.0)
    parsed = Parsed(exposition(stats_report(period_stats(gap_time=nothing))))
    assert math.isnan(parsed.values["layerline_token_gap_seconds"][labels(quantile="0.5")])
    assert parsed.values["layerline_token_gap_seconds_count"] == {labels(): 117}


def test_a_node_may_be_called_anything() -> None:
    name = 'a"b\\c\nd{}é'
    stages = (stage_stats(0, name, 0.5), stage_stats(1, "cellar", 0.5))
    period = period_stats(stages=stages)
    parsed = Parsed(exposition(stats_report(period, total=period)))
    assert labels(stage="0", node=r"a\"b\\c\nd{}é") in parsed.values["layerline_stage_busy_seconds_total"]


def test_slots_are_told_where_there_are_any() -> None:
    values = Parsed(exposition(stats_report(slots=SlotStats(used=3, cached=2, free=1)))).values
    assert values["layerline_slots"] == {labels(use="used"): 3, labels(use="cached"): 2, labels(use="free"): 1}


def test_experts_are_told_where_there_are_any() -> None:
    values = Parsed(exposition(stats_report(experts=(expert_stats(),)))).values
    cellar = labels(stage="1", node="cellar")
    assert values["layerline_expert_busiest_over_mean"] == {cellar: 1.07}
    assert values["layerline_expert_moves_total"] == {cellar: 3}
    assert values["layerline_expert_rows_total"] == {labels(stage="1", node="cellar", layer="10"): 12}
    assert "layerline_expert_moves_total" not in Parsed(exposition(stats_report())).values
