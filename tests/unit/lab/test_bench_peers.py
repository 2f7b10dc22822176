from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from layerline.models.tensor_table import StoredTensor
from tests.bench.effort import QUICK, Effort
from tests.bench.figures import Figures, Row
from tests.bench.models import MODELS
from tests.bench.peers import __main__ as command
from tests.bench.peers import build, contest, run
from tests.bench.peers.cases import NAMES, Case
from tests.bench.peers.contest import Contest
from tests.bench.peers.llama_cpp import LlamaCpp
from tests.bench.peers.llama_output import batched_tokens_per_s, bench_tokens_per_s
from tests.bench.peers.processor import processor, processor_key
from tests.bench.peers.report import write_json
from tests.bench.peers.share_of_read import bytes_for_a_token
from tests.lab.commands import LabError
from tests.lab.machine import Machine

# As llama.cpp 0.5.0 printed them, without the fields that say nothing here.
BENCH = """[
  {
    "build_commit": "0c1e570",
    "backends": "CPU",
    "model_type": "llama 256M Q4_1",
    "n_threads": 1,
    "n_prompt": 512,
    "n_gen": 0,
    "n_depth": 0,
    "avg_ns": 4958273875,
    "avg_ts": 103.261742,
    "samples_ns": [ 4958273875 ],
    "samples_ts": [ 103.262 ]
  }
]
"""
BATCHED = (
    '{"n_kv_max": 4096, "n_batch": 2048, "n_threads": 1, "n_threads_batch": 1, "pp": 16, "tg": 32, "pl": 16, '
    '"n_kv": 768, "t_pp": 2.981221, "speed_pp": 85.870857, "t_tg": 6.075101, "speed_tg": 84.278435, "t": 9.056322}\n\n'
)
JUNK = ("", "[]", "null", "{}", "[1]", "error: unable to load model", "[" * 100_000, BENCH[:-10], BATCHED[:40])


def bench(text: str, **changed: Any) -> float:
    asked = {"prompt_tokens": 512, "new_tokens": 0, "threads": 1, "backend": "CPU", **changed}
    return bench_tokens_per_s(text, **asked)


def batched(text: str, **changed: int) -> float:
    return batched_tokens_per_s(text, **{"streams": 16, "new_tokens": 32, "threads": 1, **changed})


class Steady:
    """A program that is as fast as it is told."""

    def __init__(self, tokens_per_s: float) -> None:
        self.tokens_per_s = tokens_per_s

    def decode(self, effort: Effort, repetition: int) -> float:
        return self.tokens_per_s

    def prompt(self, prompt_tokens: int, repetition: int) -> float:
        return self.tokens_per_s * prompt_tokens

    def crowd(self, streams: int, effort: Effort, repetition: int) -> float:
        return self.tokens_per_s * streams


@pytest.fixture
def ours_twice_as_fast() -> Contest:
    nodes = cast("tuple[Machine, ...]", (1,))  # only counted
    return Contest(model=MODELS["qwen"], path=Path("none"), nodes=nodes, layerline=Steady(20.0), llama_cpp=Steady(10.0))


def test_the_speeds_that_llama_cpp_printed_are_read() -> None:
    assert bench(BENCH) == 103.262
    assert batched(BATCHED) == 84.278435


@pytest.mark.parametrize("text", JUNK)
def test_junk_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(LabError, match="llama-bench printed what is not understood"):
        bench(text)
    with pytest.raises(LabError, match="llama-batched-bench printed what is not understood"):
        batched(text)


@pytest.mark.parametrize("speed", ["0", "-1.0", "NaN", "Infinity", "null", "true", '"103"', "[]", ""])
def test_a_speed_that_is_none_is_an_error(speed: str) -> None:
    with pytest.raises(LabError):
        bench(BENCH.replace("103.262 ", speed))
    with pytest.raises(LabError):
        batched(BATCHED.replace("84.278435", speed))


@pytest.mark.parametrize("changed", [{"prompt_tokens": 64}, {"new_tokens": 8}, {"threads": 2}, {"backend": "RPC"}])
def test_a_measurement_of_something_else_is_an_error(changed: dict[str, Any]) -> None:
    with pytest.raises(LabError, match="in place of"):
        bench(BENCH, **changed)


@pytest.mark.parametrize("changed", [{"streams": 8}, {"new_tokens": 8}, {"threads": 2}])
def test_a_crowd_of_another_size_is_an_error(changed: dict[str, int]) -> None:
    with pytest.raises(LabError, match="in place of"):
        batched(BATCHED, **changed)


def test_two_measurements_in_place_of_one_are_an_error() -> None:
    with pytest.raises(LabError, match="one measurement"):
        bench(json.dumps(json.loads(BENCH) * 2))
    with pytest.raises(LabError, match="2 lines"):
        batched(BATCHED * 2)


@pytest.mark.parametrize("measure", [contest.decode, contest.prefill, contest.long_prefill, contest.crowd])
def test_a_ratio_is_layerlines_speed_over_that_of_llama_cpp(measure: Any, ours_twice_as_fast: Contest) -> None:
    found = measure(ours_twice_as_fast, "case", QUICK)
    assert found.ratios == {"case_over_llamacpp.qwen": 2.0}
    assert set(found.rows[0].figures) == {"layerline_tokens_per_s", "llamacpp_tokens_per_s"}


def test_an_embedding_is_read_for_a_token_only_where_it_is_the_output_matrix() -> None:
    def stored(name: str, nbytes: int) -> StoredTensor:
        return StoredTensor(name=name, file="f", storage="F32", shape=(nbytes // 4,), offset=0, nbytes=nbytes)

    tied = [stored("token_embd.weight", 400), stored("blk.0.attn_q.weight", 80)]
    assert bytes_for_a_token(tied) == 480
    assert bytes_for_a_token([*tied, stored("output.weight", 1000)]) == 1080


def test_json_has_the_processor_the_ratios_and_the_figures_by_case_and_model(tmp_path: Path) -> None:
    row = Row(case="decode", model="qwen", nodes=1, streams=1, figures={"layerline_tokens_per_s": 20.0})
    found = Figures(rows=(row,), ratios={"decode_over_llamacpp.qwen": 2.0})
    write_json([found], "a processor", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == {
        "processor": "a processor",
        "ratios": {"decode_over_llamacpp.qwen": 2.0},
        "figures": {"decode.qwen": {"layerline_tokens_per_s": 20.0}},
    }


def test_the_processor_has_a_name_and_a_key() -> None:
    assert "(" in processor()
    assert len(processor_key()) == 8


def test_programs_are_there_only_if_all_can_be_run(tmp_path: Path) -> None:
    for name in LlamaCpp.NAMES:
        assert not LlamaCpp(tmp_path).are_there
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    assert LlamaCpp(tmp_path).are_there
    (tmp_path / LlamaCpp.NAMES[1]).chmod(0o644)
    assert not LlamaCpp(tmp_path).are_there


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("LAYERLINE_CACHE", str(tmp_path))
    return tmp_path


def leave_programs(folder: Path, names: Sequence[str]) -> None:
    """What cmake leaves when it has built those programs."""
    for name in names:
        path = folder / "build" / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)


def test_a_build_is_made_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Sequence[str]] = []

    def run_to_end(name: str, words: Sequence[str], *, folder: Path, deadline_s: float) -> None:
        begun.append(words)
        if "--build" in words:
            leave_programs(folder, LlamaCpp.NAMES)

    monkeypatch.setattr(build, "require_programs", lambda *names, purpose: None)
    monkeypatch.setattr(build, "fetch_source", lambda folder: folder)
    monkeypatch.setattr(build, "run_to_end", run_to_end)
    built = build.built_llama_cpp()
    assert built.are_there
    assert build.built_llama_cpp() == built
    assert len(begun) == 2
    assert {path.name for path in (cache / "peers").iterdir()} == {built.folder.name, ".building.lock"}


def test_a_build_that_fails_leaves_nothing_that_looks_like_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_to_end(name: str, words: Sequence[str], *, folder: Path, deadline_s: float) -> None:
        leave_programs(folder, LlamaCpp.NAMES[:2])

    monkeypatch.setattr(build, "require_programs", lambda *names, purpose: None)
    monkeypatch.setattr(build, "fetch_source", lambda folder: folder)
    monkeypatch.setattr(build, "run_to_end", run_to_end)
    with pytest.raises(LabError, match="left some of its programs out"):
        build.built_llama_cpp()
    assert [path.name for path in (cache / "peers").iterdir()] == [".building.lock"]


def test_what_is_missing_is_one_sentence_and_exit_code_1(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "why_no_lab", lambda: "")
    monkeypatch.setattr("shutil.which", lambda name: None if name == "cmake" else f"/usr/bin/{name}")
    result = CliRunner().invoke(command.main, [])
    assert result.exit_code == 1
    assert result.stderr == "Error: Building llama.cpp needs cmake, not found on PATH.\n"


def test_an_unknown_case_is_named() -> None:
    result = CliRunner().invoke(command.main, ["--only", "decode,prefil"])
    assert result.exit_code == 2
    assert "prefil: there are decode, " in result.stderr


def test_a_case_that_layerline_cannot_do_is_skipped_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Case, "why_not", property(lambda case: "it is too early" if case.placement.precision else ""))
    left = [case.name for case in run._possible(MODELS["smollm2"], NAMES)]
    assert left == ["decode", "decode_share_of_read", "prefill", "decode_t2"]
    assert capsys.readouterr().err == "smollm2: prefill_fast is skipped: it is too early.\n"
