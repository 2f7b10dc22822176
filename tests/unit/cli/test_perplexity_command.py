"""`layerline perplexity` against a coordinator on loopback."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from layerline.cli.main import program
from layerline.errors import ModelNotFoundError, NodeLostError, RequestError
from layerline.plan_request import ManualStage
from layerline.scoring import ScoringFinished, WindowScores
from tests.fakes.coordinator_service import PREPARING, SCORES, FakeCoordinator

VALUE = math.exp(5 / 4)  # of -0.5, -1.5, -1 and -2
ERROR = VALUE * math.sqrt((7.5 / 4 - (5 / 4) ** 2) / 3)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(b"Once upon\r\na time\n")
    return path


def perplexity(address: str, text: Path, *arguments: str) -> Result:
    command = ["perplexity", "tiny", "--text", str(text), "--coordinator", address, *arguments]
    return CliRunner().invoke(program, command)


def test_the_perplexity_is_one_line_and_the_rest_is_on_standard_error(address: str, text: Path) -> None:
    result = perplexity(address, text)
    expected = f"perplexity {VALUE:.4f} ± {ERROR:.4f}, 4 tokens in windows of 512, 250 ms\n"
    assert (result.exit_code, result.stdout) == (0, expected)
    lines = result.stderr.splitlines()
    assert lines[0] == "tiny: 30 layers in bfloat16, context 2048 tokens, on 2 nodes"
    assert len(lines) == 3


def test_json_is_one_object_with_the_keys_that_scripts_rely_on(address: str, text: Path) -> None:
    result = perplexity(address, text, "--json", "--context", "4")
    assert json.loads(result.stdout) == {
        "perplexity": pytest.approx(VALUE),
        "standard_error": pytest.approx(ERROR),
        "tokens": 4,
        "text_tokens": 6,
        "window_tokens": 4,
        "seconds": 0.25,
        "plan": [
            {"node": "attic", "first_layer": 0, "last_layer": 14},
            {"node": "cellar", "first_layer": 15, "last_layer": 29},
        ],
    }
    assert result.stderr == ""


def test_one_token_has_no_error(address: str, fake: FakeCoordinator, text: Path) -> None:
    window = WindowScores(start=1, token_ids=(5,), log_probabilities=(-1.0,), text_tokens=2)
    fake.scores = (window, ScoringFinished(text_tokens=2, took_s=2.0, plan=()))
    assert perplexity(address, text).stdout == "perplexity 2.7183, 1 token in windows of 512, 2 s\n"
    assert json.loads(perplexity(address, text, "--json").stdout)["standard_error"] is None


def test_the_text_goes_out_to_the_last_byte_and_options_reach_the_planner(
    address: str, fake: FakeCoordinator, text: Path
) -> None:
    placement = "--layers a=0-1,b=2-29 --dtype float32 --kv-dtype int8 --tensor-parallel 2 --context 99"
    assert perplexity(address, text, *placement.split()).exit_code == 0
    (asked,), (planned,) = fake.scored, fake.planned
    assert (asked.text, asked.window_tokens) == ("Once upon\r\na time\n", 99)
    assert (planned.dtype, planned.kv_dtype, planned.tensor_parallel, planned.context_tokens) == (
        *("float32", "int8"),
        *(2, 99),
    )
    assert planned.layers[1] == ManualStage(node="b", first_layer=2, last_layer=29)
    assert perplexity(address, text).exit_code == 0
    assert (fake.scored[1].window_tokens, fake.planned[1].context_tokens) == (512, 0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty. Give a file with a text."),
        (b"Gr\xfc\xdfe", "is not a text in UTF-8: see its byte 2. Convert it, as with iconv."),
        (b"a" * ((4 << 20) + 1), "has over 4.0 MiB, the most that is scored at once. Cut it, and measure the parts."),
    ],
)
def test_a_file_that_cannot_be_scored_is_told_before_anything_is_done(
    address: str, fake: FakeCoordinator, text: Path, data: bytes, reason: str
) -> None:
    text.write_bytes(data)
    result = perplexity(address, text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"layerline: error: {text} {reason}\n"
    assert fake.planned == []


def test_the_largest_file_is_taken(address: str, fake: FakeCoordinator, text: Path) -> None:
    text.write_bytes("é".encode() * (2 << 20))
    assert perplexity(address, text).exit_code == 0
    assert fake.scored[0].text == "é" * (2 << 20)


def test_no_file_and_a_folder_are_told(address: str, tmp_path: Path) -> None:
    missing, folder = perplexity(address, tmp_path / "none"), perplexity(address, tmp_path)
    assert (missing.exit_code, folder.exit_code) == (2, 2)
    assert "does not exist" in missing.stderr
    assert "is a directory" in folder.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--context", "1"], "Invalid value for '--context'"),
        (["--node", "h:1"], "--coordinator and --node exclude each other."),
        (["--layers", "a=5-2"], "'a=5-2' in --layers ends before it begins"),
        (["--temperature", "1"], "No such option '--temperature'"),
    ],
)
def test_a_wrong_option_is_one_sentence_that_names_it(
    address: str, text: Path, arguments: list[str], reason: str
) -> None:
    result = perplexity(address, text, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert reason in line


def test_failures_of_the_coordinator_have_their_exit_codes(address: str, fake: FakeCoordinator, text: Path) -> None:
    fake.scores = (RequestError("The text has 1 token, and the first has none before it."),)
    assert perplexity(address, text).exit_code == 7
    fake.scores = (SCORES[0], NodeLostError("The connection is gone.", node="cellar"))
    result = perplexity(address, text)
    assert (result.exit_code, result.stdout) == (6, "")
    assert result.stderr.splitlines()[-1] == "layerline: error: The connection is gone. (Node cellar.)"
    fake.preparing = (PREPARING[0], ModelNotFoundError("No node has tiny.", remedy="Copy it there."))
    assert perplexity(address, text).exit_code == 4
