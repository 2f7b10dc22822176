"""scripts/quickstart from its first line to its last process."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.asking import ANSWER, QUESTION
from tests.lab.lab import Lab
from tests.lab.machine import Machine
from tests.lab.nodes import spare_measuring, start_node
from tests.lab.process import Finished, Process, wait_until

DEADLINE_S = 120.0
END_DEADLINE_S = 20.0
LONG = ("Write a long story about the sea.", "--max-tokens", "3000")


@pytest.fixture
def machine(smollm2: Path) -> Iterator[Machine]:
    """A machine on which quickstart has run before: the model is there and the speed is known."""
    with Lab("a", "b") as lab:
        lab["a"].give_model(smollm2)
        spare_measuring(lab["a"])
        state = lab["a"].folder / "cache" / "quickstart"
        state.mkdir()
        shutil.copy(lab["a"].folder / "state" / "speeds.json", state)
        yield lab["a"]


def quickstart(machine: Machine, *arguments: str) -> Process:
    return machine.start(["scripts/quickstart", *arguments])


def assert_nothing_left(machine: Machine) -> None:
    wait_until(lambda: not machine.pids(), "end of every process", deadline_s=END_DEADLINE_S)
    assert not list((machine.folder / "tmp").iterdir())
    assert not started_nodes(machine)


def started_nodes(machine: Machine) -> list[Path]:
    return list(machine.folder.glob("cache/quickstart/nodes/*"))


def test_two_small_nodes_answer_and_end(machine: Machine) -> None:
    finished = quickstart(machine, QUESTION, "--temperature", "0").wait(deadline_s=DEADLINE_S)
    assert finished.exit_code == 0, finished.stderr
    assert finished.stdout == f"{ANSWER}\n"
    assert "quickstart-a" in finished.stderr
    assert "quickstart-b" in finished.stderr
    assert re.search(r"layers [1-9]\d?-29", finished.stderr), finished.stderr
    assert "tokens/s" in finished.stderr
    assert "quickstart:" not in finished.stderr
    assert_nothing_left(machine)


@pytest.mark.slow
def test_ctrl_c_in_mid_answer(machine: Machine) -> None:
    running = quickstart(machine, *LONG)
    running.wait_for_output(r"\w+ \w+", deadline_s=DEADLINE_S)
    running.interrupt()
    assert_ended(running.wait(deadline_s=END_DEADLINE_S), 130)
    assert_nothing_left(machine)


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_being_ended_while_the_nodes_start(machine: Machine, number: signal.Signals, exit_code: int) -> None:
    running = quickstart(machine, *LONG)
    wait_until(lambda: bool(started_nodes(machine)), "a node", deadline_s=DEADLINE_S)
    running.signal(number)
    assert_ended(running.wait(deadline_s=END_DEADLINE_S), exit_code)
    assert_nothing_left(machine)


def test_a_wrong_option_is_told_and_nothing_is_left(machine: Machine) -> None:
    finished = quickstart(machine, QUESTION, "--temprature", "0").wait(deadline_s=DEADLINE_S)
    assert_ended(finished, 2)
    assert "--temperature" in finished.stderr
    wait_until(lambda: not machine.pids(), "end of every process", deadline_s=END_DEADLINE_S)


@pytest.mark.slow
def test_the_nodes_of_others_are_left_out(smollm2: Path, machine: Machine) -> None:
    machine.give_model(smollm2, "other.gguf")
    other = start_node(machine)
    finished = quickstart(machine, QUESTION, "--json").wait(deadline_s=DEADLINE_S)
    assert finished.exit_code == 0, finished.stderr
    assert "other nodes" in finished.stderr
    assert '"node": "quickstart-b-' in finished.stdout
    assert other.running


def assert_ended(finished: Finished, exit_code: int) -> None:
    assert finished.exit_code == exit_code, finished.stderr
    assert "Traceback" not in finished.stderr
