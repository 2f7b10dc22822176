from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench.figures import Figures, Row
from tests.bench.layout import TWO_NODES, TWO_RANKS
from tests.bench.models import MODELS
from tests.bench.placement import Placement
from tests.bench.report import print_report, write_json
from tests.bench.streams import Stream, streams_from_json

ONE = Row(case="decode", model="tiny", nodes=1, streams=1, figures={"tokens_per_s": 12.34, "cores_busy": 1.0})
MEMORY = Row(case="memory", model="tiny", nodes=2, figures={"a_mib": 1234.5, "b_mib": 99.96})
FOUND = [Figures(rows=(ONE, MEMORY), ratios={"decode_2n_over_1n.tiny": 0.97}), Figures(rows=())]


def test_figures_are_printed_with_their_units() -> None:
    text = io.StringIO()
    print_report(FOUND, Console(file=text, width=120))
    assert "12.3 tokens/s, 1 cores busy" in text.getvalue()
    assert "a 1,234 MiB, b 100 MiB" in text.getvalue()
    assert "0.970" in text.getvalue()


def test_json_has_ratios_cases_and_machine(tmp_path: Path) -> None:
    write_json(FOUND, {"cores": 2}, tmp_path / "out.json")
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["ratios"] == {"decode_2n_over_1n.tiny": 0.97}
    assert written["machine"] == {"cores": 2}
    assert written["cases"][0] == {
        "case": "decode",
        "model": "tiny",
        "nodes": 1,
        "streams": 1,
        "tokens_per_s": 12.34,
        "cores_busy": 1.0,
    }


def test_the_first_token_does_not_count_for_decoding() -> None:
    text = (
        '[{"token_times_s": [1.0, 1.5, 2.0, 2.0], "token_ids": [1, 2, 3, 4], "prompt_tokens": 9, "finish_reason": "x"}]'
    )
    (stream,) = streams_from_json(text)
    assert stream.ttft_s == 1.0
    assert stream.decode_tokens_per_s == pytest.approx(3.0)


def test_tokens_that_come_with_the_first_do_not_count_either() -> None:
    stream = Stream(token_times_s=(1.0, 1.0, 2.0), token_ids=(1, 2, 3), prompt_tokens=1, finish_reason="length")
    assert stream.decode_tokens_per_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("placement", "nodes", "words"),
    [
        (Placement(), ("a",), []),
        (Placement(), ("a", "b"), ["--layers", "a=0-13,b=14-23"]),
        (Placement(cut="even for answers"), ("a", "b"), ["--layers", "a=0-18,b=19-23"]),
        (Placement(cut="even for prompts"), ("a", "b"), ["--layers", "a=0-11,b=12-23"]),
        (Placement(cut="planned"), ("a", "b"), []),
        (Placement(cut="planned", first_layers=10), ("a", "b"), ["--layers", "a=0-9,b=10-23"]),
    ],
)
def test_two_nodes_are_told_their_layers(placement: Placement, nodes: tuple[str, ...], words: list[str]) -> None:
    assert placement.words(MODELS["qwen"], nodes) == words


def test_a_node_has_little_memory_where_the_planner_cuts() -> None:
    assert Placement(cut="planned").node_words(2, 1000) == ["--memory", "1300B"]
    assert Placement(cut="planned").node_words(1, 1000) == Placement().node_words(2, 1000) == []


def test_only_nodes_of_one_thread_have_a_core_of_their_own() -> None:
    assert [TWO_NODES.core_of(node) for node in range(2)] == [0, 1]
    assert TWO_RANKS.core_of(0) is None
    assert TWO_RANKS.words == ["--tensor-parallel", "2"]
    assert TWO_NODES.words == []
