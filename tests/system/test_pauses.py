"""Pauses: a program that is stopped for seconds, or a cable that is out for seconds, costs nobody the answer."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
import pytest

from tests.lab.asking import MODEL
from tests.lab.process import Process
from tests.lab.two_nodes import TwoNodes

pytestmark = pytest.mark.slow

READY_DEADLINE_S = 40.0
ANSWER_DEADLINE_S = 90.0
TOKENS = 160
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
    assert f"answer {TOKENS} tokens" in finished.stderr
    return finished.stdout


@pytest.mark.parametrize("stage", [0, 1])
def test_three_seconds_of_a_worker_are_waited_for(cluster: TwoNodes, coordinator: Process, stage: int) -> None:
    text_of(begun(cluster))  # after it the prompt is cached, and computed in other pieces than the first time
    undisturbed = text_of(begun(cluster))
    workers, prompt = cluster.workers(), begun(cluster)
    worker = cluster.worker((cluster.a, cluster.b)[stage])
    worker.suspend()
    time.sleep(3)
    worker.resume()
    assert text_of(prompt) == undisturbed
    assert cluster.workers() == workers


def test_an_answer_outlives_four_seconds_without_a_cable(cluster: TwoNodes, coordinator: Process) -> None:
    prompt = begun(cluster)
    cluster.b.unplug()
    time.sleep(4)
    cluster.b.plug()
    assert text_of(prompt)


def test_ten_seconds_of_a_coordinator_are_no_loss_to_its_clients(cluster: TwoNodes, coordinator: Process) -> None:
    prompt = begun(cluster)
    process = psutil.Process(coordinator.pid)
    process.suspend()
    time.sleep(10)
    process.resume()
    assert text_of(prompt)
