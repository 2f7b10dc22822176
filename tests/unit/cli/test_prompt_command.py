"""`layerline prompt` against a coordinator on loopback."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from layerline.answer import Alternative, Piece, TokenLikelihood
from layerline.chat import Message
from layerline.cli.main import program
from layerline.errors import ModelNotFoundError, NodeLostError, PlanDoesNotFitError
from layerline.plan_request import ManualStage
from layerline.requests import Structure
from layerline.sampling import SamplingOptions
from tests.fakes.coordinator_service import ANSWER, FINISHED, PREPARING, FakeCoordinator, Hang

WAIT_S = 20


def prompt(address: str, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(program, ["prompt", "--model", "tiny", "--coordinator", address, *arguments], input=stdin)


def test_a_prompt_prints_the_answer_alone_and_the_rest_on_standard_error(address: str) -> None:
    result = prompt(address, "What is the capital of France?")
    assert (result.exit_code, result.stdout) == (0, "Paris.\n")
    lines = result.stderr.splitlines()
    assert lines[0] == "tiny: 30 layers in bfloat16, context 2048 tokens, on 2 nodes"
    assert lines[1] == "  attic   layers 0-14 on cpu, 704 MiB of 1.0 GiB"
    assert lines[2] == "  cellar  layers 15-29 on cpu, 704 MiB of 1.0 GiB"
    assert lines[3] == (
        "prompt 7 tokens at 28.0 tokens/s, answer 3 tokens at 12.5 tokens/s, first token after 0.25 s, seed 42"
    )
    assert len(lines) == 4


def test_options_reach_the_coordinator(address: str, fake: FakeCoordinator) -> None:
    sampling = "--max-tokens 9 --temperature 0.5 --top-p 0.25 --top-k 7 --min-p 0.125 --repetition-penalty 2 --seed 5"
    sampling += " --presence-penalty -0.5 --frequency-penalty 1.5"
    others = "--system S --stop a --stop b --layers a=0-1,b=2-29 --dtype float32 --kv-dtype int8 --context 99"
    others += " --tensor-parallel 2"
    assert prompt(address, "Hi", *shlex.split(sampling), *shlex.split(others)).exit_code == 0
    (asked,), (planned,) = fake.asked, fake.planned
    assert asked.messages == (Message(role="system", content="S"), Message(role="user", content="Hi"))
    assert asked.sampling == SamplingOptions(
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        min_p=0.125,
        repetition_penalty=2.0,
        presence_penalty=-0.5,
        frequency_penalty=1.5,
    )
    assert (asked.max_tokens, asked.seed, asked.stop) == (9, 5, ("a", "b"))
    assert (planned.model, planned.dtype, planned.kv_dtype, planned.context_tokens) == ("tiny", "float32", "int8", 99)
    assert planned.layers[1] == ManualStage(node="b", first_layer=2, last_layer=29)
    assert planned.tensor_parallel == 2


def test_json_is_one_object_with_the_keys_that_scripts_rely_on(address: str) -> None:
    result = prompt(address, "Hi", "--json")
    assert json.loads(result.stdout) == {
        "text": "Paris.",
        "thinking": "",
        "token_ids": [1, 2, 3],
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 0, "thinking_tokens": 0},
        "timings": {"ttft_s": 0.25, "prefill_tokens_per_s": 28.0, "decode_tokens_per_s": 12.5},
        "plan": [
            {"node": "attic", "first_layer": 0, "last_layer": 14},
            {"node": "cellar", "first_layer": 15, "last_layer": 29},
        ],
        "seed": 42,
    }
    assert result.stderr == ""


def test_raw_text_may_come_from_standard_input(address: str, fake: FakeCoordinator) -> None:
    assert prompt(address, "-", "--raw", stdin="Once upon\n").exit_code == 0
    assert (fake.asked[0].prompt, fake.asked[0].messages) == ("Once upon\n", None)


def test_an_answer_that_ends_its_line_gets_no_second_line_end(address: str, fake: FakeCoordinator) -> None:
    fake.answers = [(Piece(text="Line\n", token_ids=(1,)), FINISHED)]
    assert prompt(address, "Hi").stdout == "Line\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["Hi", "--raw", "--system", "S"], "--raw and --system exclude each other."),
        (["Hi", "--top-p", "5"], "Invalid value for '--top-p'"),
        (["Hi", "--temperature", "nan"], "--temperature': 'nan' is not a number"),
        (["Hi", "--temprature", "1"], "No such option '--temprature'. Did you mean '--temperature'?"),
        (["Hi", "--layers", "a=5-2"], "'a=5-2' in --layers ends before it begins"),
        (["Hi", "--node", "x"], "Invalid value for '--node': 'x' is not of the form HOST:PORT."),
        (["Hi", "--node", "h:1"], "--coordinator and --node exclude each other."),
        (["Hi", "--model", ""], "model name is not a short printable name"),
        (["Hi", "--stop", ""], "stop must be a string or up to 16 of them, none empty"),
        ([], "Missing argument 'TEXT'."),
    ],
)
def test_a_wrong_option_is_one_sentence_that_names_it(address: str, arguments: list[str], reason: str) -> None:
    result = prompt(address, *arguments)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("layerline: error: ")
    assert reason in line
    assert result.stdout == ""


def test_failures_of_the_coordinator_have_their_exit_codes(address: str, fake: FakeCoordinator) -> None:
    fake.preparing = (PREPARING[0], ModelNotFoundError("No node has tiny.", remedy="Copy it there."))
    result = prompt(address, "Hi")
    assert (result.exit_code, result.stderr) == (4, "layerline: error: No node has tiny. Copy it there.\n")
    fake.preparing = (PlanDoesNotFitError("It needs 9 GiB, attic has 1 GiB."),)
    assert prompt(address, "Hi").exit_code == 5


def test_a_node_lost_in_the_middle_leaves_what_came_so_far(address: str, fake: FakeCoordinator) -> None:
    fake.answers = [(ANSWER[0], NodeLostError("The connection is gone.", node="cellar"))]
    result = prompt(address, "Hi")
    assert (result.exit_code, result.stdout) == (6, "Par\n")
    assert result.stderr.splitlines()[-1] == "layerline: error: The connection is gone. (Node cellar.)"


def test_a_node_that_the_sentence_names_is_not_named_twice(address: str, fake: FakeCoordinator) -> None:
    fake.answers = [(NodeLostError("Node a is gone.", node="a"),), (NodeLostError("It is away.", node="a"),)]
    assert prompt(address, "Hi").stderr.splitlines()[-1] == "layerline: error: Node a is gone."
    assert prompt(address, "Hi").stderr.splitlines()[-1] == "layerline: error: It is away. (Node a.)"


def test_no_coordinator_at_the_address_is_exit_code_3() -> None:
    result = prompt("127.0.0.1:1", "Hi")
    assert result.exit_code == 3
    assert "No coordinator answers at 127.0.0.1:1" in result.stderr


@pytest.mark.system
@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels_the_request_and_ends_quietly(
    address: str, fake: FakeCoordinator, number: signal.Signals, exit_code: int
) -> None:
    fake.answers = [(ANSWER[0], Hang())]
    with _process(address) as process:
        assert process.stdout is not None
        assert process.stdout.read(3) == b"Par"
        os.kill(process.pid, number)
        stdout, stderr = process.communicate(timeout=WAIT_S)
        assert fake.cancelled.get(timeout=WAIT_S) == "cancelled"
    assert (process.returncode, stdout) == (exit_code, b"\n")
    assert b"rror" not in stderr
    assert b"Traceback" not in stderr


@pytest.mark.system
def test_a_reader_that_leaves_is_no_traceback(address: str, fake: FakeCoordinator) -> None:
    many = [Piece(text="word " * 1000, token_ids=(1,)) for _ in range(200)]
    fake.answers = [(*many, FINISHED)]
    with _process(address) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        stderr = process.stderr.read()
        assert process.wait(WAIT_S) == 141
    assert b"error" not in stderr
    assert b"Traceback" not in stderr


@contextmanager
def _process(address: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own, which is ended with the block, whatever it waits for."""
    command = [sys.executable, "-m", "layerline.cli.main", "prompt", "Hi", "--model", "tiny", "--coordinator", address]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


LIKELY = TokenLikelihood(
    token=Alternative(token_id=1, text=b"Par", log_probability=-0.5),
    likeliest=(
        Alternative(token_id=1, text=b"Par", log_probability=-0.5),
        Alternative(token_id=2, text=b"\xe2\x9b", log_probability=-1.5),
    ),
)


def test_how_likely_each_token_was_is_told_below_the_answer(address: str, fake: FakeCoordinator) -> None:
    fake.answers = [(Piece(text="Par", token_ids=(1,), likelihoods=(LIKELY,)), FINISHED)]
    result = prompt(address, "Hi", "--logprobs", "2")
    assert result.stdout == "Par\n"
    assert '"Par" 60.7% (-0.500)  of "Par" 60.7% (-0.500), "\ufffd" 22.3% (-1.500)' in result.stderr
    assert fake.asked[0].log_probabilities == 2
    told = json.loads(prompt(address, "Hi", "--logprobs", "0", "--json").stdout)["log_probabilities"]
    assert [each["text"] for each in told[0]["likeliest"]] == ["Par", "\ufffd"]
    assert (told[0]["token_id"], told[0]["log_probability"]) == (1, -0.5)
    assert prompt(address, "Hi", "--logprobs", "21").exit_code == 2


def test_an_answer_is_held_to_the_schema_in_a_file(address: str, fake: FakeCoordinator, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"type": "object"}')
    assert prompt(address, "Hi", "--json-schema", str(path)).exit_code == 0
    assert fake.asked[0].structure == Structure(kind="json_schema", text='{"type": "object"}')


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), (b"{", "is not JSON"), (b"[]", "has no JSON object"), (b"[" * 100_000, "is not JSON")],
)
def test_a_file_without_a_schema_is_refused(address: str, tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_bytes(content)
    result = prompt(address, "Hi", "--json-schema", str(path))
    assert result.exit_code != 0
    assert words in result.stderr
