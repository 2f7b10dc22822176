"""`layerline stats` against a coordinator on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from layerline import AsyncClient, Client, RequestError
from layerline.cli.main import program
from layerline.stats_report import SlotStats
from tests.fakes.coordinator_service import FakeCoordinator, serving
from tests.fakes.stats_report import expert_stats, request_stats, stats_report

REPORT = stats_report()


@pytest.fixture
def fake() -> FakeCoordinator:
    return FakeCoordinator()


@pytest.fixture
def address(fake: FakeCoordinator) -> Iterator[str]:
    with serving(fake) as address:
        yield address


def run(address: str, *arguments: str) -> Result:
    return CliRunner().invoke(program, ["stats", *arguments, "--coordinator", address])


def lines(result: Result) -> list[str]:
    return [line.rstrip() for line in result.stdout.splitlines()]


def row(result: Result, beginning: str) -> str:
    """The one line that begins so, with single spaces."""
    (line,) = [line for line in lines(result) if line.startswith(beginning)]
    return " ".join(line.split())


def test_the_diagnosis_comes_first_below_what_it_is_of(address: str) -> None:
    head, diagnosis, *_ = lines(run(address))
    assert head == "tiny on 2 nodes, the last 60 s of 60 min: at work 75% of it, 120 tokens (2.0/s)"
    assert diagnosis == REPORT.diagnosis[0]


def test_stages_and_links_are_tables(address: str) -> None:
    result = run(address)
    assert result.exit_code == 0
    assert row(result, "0 ") == "0 attic 0-9 50% 50% 2% 50% 100 50 ms 50 ms 50 ms"
    assert row(result, "attic → cellar") == "attic → cellar 100 3.0 MiB 500 ms 10 ms 5%"


def test_requests_are_a_table_and_what_is_not_yet_is_left_empty(address: str) -> None:
    result = run(address)
    assert row(result, "9 ") == "9 decoding 4.5 s 250 ms 750 ms 30 12 50 ms 87.5 ms"
    assert row(result, "8 ") == "8 waiting 4.5 s 250 ms 30 0"
    assert row(result, "7 ").startswith("7 stop ")


def test_the_rest_is_in_lines(address: str) -> None:
    told = lines(run(address))
    assert "between tokens: 125 ms (p50 125 ms, p99 125 ms)" in told
    assert "sequences now: 0 queued, 1 prefilling, 4 decoding, 0 leaving; 2 steps in flight" in told
    pages = "pages now: 50 used, 20 cached, 30 free; since start 250 of 1000 tokens were cached (25%), 2 preemptions"
    assert pages in told
    assert "requests since start: 5 stop, 4 length, 3 cancelled, 2 failed, 1 refused" in told


def test_a_model_with_recurrent_layers_has_a_line_for_slots(address: str, fake: FakeCoordinator) -> None:
    assert not any(line.startswith("slots") for line in lines(run(address)))
    fake.stats = stats_report(slots=SlotStats(used=3, cached=2, free=1))
    assert "slots now: 3 used, 2 cached, 1 free" in lines(run(address))


def test_many_requests_are_cut_with_a_word(address: str, fake: FakeCoordinator) -> None:
    fake.stats = stats_report(requests=tuple(request_stats(number, "ended") for number in range(50, 0, -1)))
    told = lines(run(address))
    assert told[-1] == "… and 38 older requests, which --json has."
    assert told[-2].split()[0] == "39"


def test_since_start_shows_the_other_period(address: str) -> None:
    head = lines(run(address, "--since-start"))[0]
    assert head == "tiny on 2 nodes, the last 60 min of 60 min: at work 75% of it, 7200 tokens (2.0/s)"


def test_json_has_everything(address: str) -> None:
    told = json.loads(run(address, "--json").stdout)
    assert told["recent"]["stages"][1]["node"] == "cellar"
    assert (told["recent"]["steps"], told["total"]["steps"]) == (100, 9000)
    assert told["recent"]["links"][1]["wire_s"] == pytest.approx(0.01)
    assert [request["first_token_s"] for request in told["requests"]] == [0.75, None, 0.75]
    assert told["diagnosis"] == list(REPORT.diagnosis)


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_no_model_in_service_is_said_in_one_sentence(address: str, fake: FakeCoordinator, option: list[str]) -> None:
    fake.stats = RequestError("No model is in service.", remedy="Ask again once one is loaded.")
    result = run(address, *option)
    sentence = "layerline: error: No model is in service. Ask again once one is loaded.\n"
    assert (result.stdout, result.stderr) == ("", sentence)
    assert result.exit_code == RequestError("").exit_code


def test_no_coordinator_is_exit_code_3_or_as_it_is_told() -> None:
    result = CliRunner().invoke(program, ["stats", "--coordinator", "127.0.0.1:9"])
    assert "No coordinator answers at 127.0.0.1:9" in result.stderr
    assert result.exit_code != 0


async def test_both_clients_give_the_noun(address: str) -> None:
    with Client(address) as client:
        assert client.stats() == REPORT
    async with AsyncClient(address) as client:
        assert await client.stats() == REPORT


def test_how_even_the_ranks_of_a_stage_are_is_in_a_line(fake: FakeCoordinator, address: str) -> None:
    alone = expert_stats(stage=0, node="attic", ranks=1, sharing="")
    fake.stats = stats_report(experts=(alone, expert_stats()))
    moves = "3 moves of a layer's experts"
    line = f"experts of stage 1 (cellar), spread: the busiest of 2 ranks computes {{}} times the mean; {moves}"
    for arguments, ratio in (((), "1.07"), (("--since-start",), "1.21")):
        told = [each for each in lines(run(address, *arguments)) if each.startswith("experts of")]
        assert told == [line.format(ratio)]
    told = json.loads(run(address, "--json").stdout)["experts"]
    assert [each["layers"][0]["rows"] for each in told] == [[5, 7], [5, 7]]
