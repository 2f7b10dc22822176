"""A machine whose node splits the model over two parts of its CPU: it answers, and says which rank it lost and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.lab.asking import ANSWER, answered, ask, assert_goes_on, begin_long_answer
from tests.lab.lab import Lab
from tests.lab.machine import Machine
from tests.lab.nodes import await_measured, spare_measuring, start_node
from tests.lab.process import Process

LOST_DEADLINE_S = 30.0  # ten seconds are promised for a frozen rank
ON_TWO = ("--tensor-parallel", "2")


@dataclass(frozen=True, kw_only=True)
class SplitNode:
    """The node `a` of two one-thread devices, and a machine to ask from."""

    a: Machine
    desk: Machine
    daemon: Process

    def ranks(self) -> list[psutil.Process]:
        """Its workers, rank 0 first."""
        return sorted(self.daemon.children("node.worker"), key=lambda worker: worker.pid)

    def begin(self) -> Process:
        """A long answer in the middle."""
        return begin_long_answer(self.desk, *ON_TWO)


@pytest.fixture(scope="module")
def node(allowed: None, smollm2: Path) -> Iterator[SplitNode]:
    with Lab("a", "desk") as lab:
        lab["a"].give_model(smollm2)
        spare_measuring(lab["a"])
        daemon = start_node(lab["a"], device="cpu:1,cpu:1")
        await_measured(daemon)
        yield SplitNode(a=lab["a"], desk=lab["desk"], daemon=daemon)


def assert_lost(prompt: Process, why: str) -> None:
    """The prompt ends with the code for a lost node and a sentence that names the rank."""
    finished = prompt.wait(deadline_s=LOST_DEADLINE_S)
    assert finished.exit_code == 6, finished.stderr
    assert why in finished.stderr
    assert "Traceback" not in finished.stderr


def test_two_ranks_answer_as_one_device_does(node: SplitNode) -> None:
    answer = answered(ask(node.desk, *ON_TWO))
    assert answer["text"] == ANSWER
    assert len(node.ranks()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank(node: SplitNode, rank: int) -> None:
    prompt = node.begin()
    node.ranks()[rank].kill()
    assert_goes_on(prompt)
    assert answered(ask(node.desk, *ON_TWO))["text"] == ANSWER


@pytest.mark.slow
def test_a_rank_that_freezes_is_named_after_ten_seconds(node: SplitNode) -> None:
    prompt = node.begin()
    node.ranks()[1].suspend()
    assert_goes_on(prompt)
    assert answered(ask(node.desk, *ON_TWO))["text"] == ANSWER


@pytest.mark.slow
def test_a_rank_0_that_freezes_is_noticed_by_its_silence(node: SplitNode) -> None:
    prompt = node.begin()
    node.ranks()[0].suspend()
    assert_goes_on(prompt)
    assert answered(ask(node.desk, *ON_TWO))["text"] == ANSWER
