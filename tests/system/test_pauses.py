"""Pauses: a program that is stopped for seconds, or a cable that is out for seconds, costs nobody the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.lab.asking import MODEL
from tests.lab.process import Process
from tests.lab.two_nodes import TwoNodes

pytestmark = pytest.mark.slow

READY_DEADLINE_S = 40.0
ANSWER_DEADLINE_S = 90.0
TOKENS = 400
PORT = 7411


@pytest.fixture
def coordinator(cluster: TwoNodes) -> Iterator[Process]:
    words = ["layerline", "coordinator", "--model", MODEL, "--port", str(PORT), *cluster.by_address]
    process = cluster.desk.start(words)
    process.wait_for("Ready:", deadline_s=READY_DEADLINE_S)
    yield process
    process.terminate()
    assert process.wait(deadline_s=10).exit_code == 0


def begun(cluster: TwoNodes) -> Process:
    """A long answer, of which some has come."""
    words = ["layerline", "prompt", "Write a long story about the sea.", "--model", MODEL, "--max-tokens", str(TOKENS)]
    prompt = cluster.desk.start([*words, "--coordinator", f"127.0.0.1:{PORT}", "--temperature", "0"])
    prompt.wait_for_output(r"\w+ \w+ \w+", deadline_s=READY_DEADLINE_S)
    return prompt


def text_of(prompt: Process) -> str:
    """The whole answer, once it has come."""
    finished = prompt.wait(deadline_s=ANSWER_DEADLINE_S)
    assert finished.exit_code == 0, finished.stderr
    return finished.stdout


@pytest.mark.parametrize("of", ["first worker", "last worker", "cable"])
def test_four_seconds_of_a_worker_or_a_cable_are_waited_for(cluster: TwoNodes, coordinator: Process, of: str) -> None:
    undisturbed = text_of(begun(cluster))
    workers, prompt = cluster.workers(), begun(cluster)
    stop, go_on = pauses(cluster)[of]
    stop()
    time.sleep(4)
    go_on()
    assert text_of(prompt) == undisturbed
    assert cluster.workers() == workers


def test_ten_seconds_of_a_coordinator_are_no_loss_to_its_clients(cluster: TwoNodes, coordinator: Process) -> None:
    prompt = begun(cluster)
    process = psutil.Process(coordinator.pid)
    process.suspend()
    time.sleep(10)
    process.resume()
    assert len(text_of(prompt)) > TOKENS  # letters; an answer that is cut off has fewer


def pauses(cluster: TwoNodes) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """What stops each, and what lets it go on."""
    first, last = cluster.worker(cluster.a), cluster.worker(cluster.b)
    return {
        "first worker": (first.suspend, first.resume),
        "last worker": (last.suspend, last.resume),
        "cable": (cluster.b.unplug, cluster.b.plug),
    }
