"""Machines and processes that go away in mid-answer: it goes on, or ends with an error that names the node."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.lab.asking import ANSWER, answered, ask, assert_goes_on, begin_long_answer, nodes_seen
from tests.lab.process import Finished, Process, wait_until
from tests.lab.two_nodes import TwoNodes

LOST_DEADLINE_S = 20.0  # ten seconds are promised
DRAIN_DEADLINE_S = 10.0  # five seconds are promised
BACK_DEADLINE_S = 30.0
NEEDS_BOTH = ("--context", "8192")  # one node by itself has no memory for so long a context


@pytest.fixture(autouse=True)
def whole(cluster: TwoNodes) -> Iterator[None]:
    """Both nodes are up before each test, whatever the one before did to them."""
    for machine in (cluster.a, cluster.b):
        if not cluster.daemons[machine.name].running:
            cluster.start(machine)
    yield
    for machine in (cluster.a, cluster.b):
        machine.plug()


def test_a_killed_worker_of_the_first_stage(cluster: TwoNodes) -> None:
    prompt = begin_long_answer(cluster.desk, *cluster.by_address)
    cluster.worker(cluster.a).kill()
    assert_goes_on(prompt)
    assert cluster.daemons["a"].running
    assert answered(ask(cluster.desk, *cluster.by_address))["text"] == ANSWER


@pytest.mark.slow
def test_a_killed_worker_of_the_last_stage(cluster: TwoNodes) -> None:
    prompt = begin_long_answer(cluster.desk, *cluster.by_address)
    cluster.worker(cluster.b).kill()
    assert_goes_on(prompt)
    assert cluster.daemons["b"].running


@pytest.mark.slow
def test_a_killed_daemon(cluster: TwoNodes) -> None:
    prompt = begin_long_answer(cluster.desk, *cluster.by_address, *NEEDS_BOTH)
    cluster.daemons["b"].kill()
    assert_lost(prompt, "b")
    wait_until(lambda: not cluster.b.pids(), "end of the worker whose daemon was killed", deadline_s=LOST_DEADLINE_S)
    assert cluster.daemons["a"].running
    cluster.start(cluster.b)
    assert answered(ask(cluster.desk, *cluster.by_address))["text"] == ANSWER


@pytest.mark.slow
def test_a_frozen_worker(cluster: TwoNodes) -> None:
    prompt = begin_long_answer(cluster.desk, *cluster.by_address)
    cluster.worker(cluster.a).suspend()
    assert_goes_on(prompt)
    assert answered(ask(cluster.desk, *cluster.by_address))["text"] == ANSWER


@pytest.mark.slow
def test_a_frozen_machine(cluster: TwoNodes) -> None:
    prompt = begin_long_answer(cluster.desk, *cluster.by_address, *NEEDS_BOTH)
    with cluster.b.frozen():
        assert_lost(prompt, "b")
    assert answered(ask(cluster.desk, *cluster.by_address))["text"] == ANSWER


@pytest.mark.slow
def test_an_unplugged_cable(cluster: TwoNodes) -> None:
    prompt = begin_long_answer(cluster.desk, *cluster.by_address, *NEEDS_BOTH)
    cluster.b.unplug()
    assert_lost(prompt, "b")
    cluster.b.plug()
    wait_until(lambda: set(nodes_seen(cluster.desk)) == {"a", "b"}, "return of b", deadline_s=BACK_DEADLINE_S)
    assert answered(ask(cluster.desk, *cluster.by_address))["text"] == ANSWER


@pytest.mark.slow
def test_a_node_that_is_told_to_end(cluster: TwoNodes) -> None:
    prompt = begin_long_answer(cluster.desk, *cluster.by_address, *NEEDS_BOTH)
    cluster.daemons["a"].terminate()
    assert "shutting down" in assert_lost(prompt, "a").stderr
    assert cluster.daemons["a"].wait(deadline_s=DRAIN_DEADLINE_S).exit_code == 0
    wait_until(lambda: not cluster.a.pids(), "end of all that the node had started", deadline_s=DRAIN_DEADLINE_S)


def test_a_coordinator_that_is_killed_leaves_the_nodes_free(cluster: TwoNodes) -> None:
    prompt = begin_long_answer(cluster.desk, *cluster.by_address)
    workers = cluster.workers()
    prompt.kill()
    assert prompt.wait(deadline_s=LOST_DEADLINE_S).exit_code == -signal.SIGKILL
    assert answered(ask(cluster.desk, *cluster.by_address))["text"] == ANSWER
    assert cluster.workers() == workers


def assert_lost(prompt: Process, name: str) -> Finished:
    """The prompt ends in time, with the code for a lost node and a sentence that names it."""
    finished = prompt.wait(deadline_s=LOST_DEADLINE_S)
    assert finished.exit_code == 6, finished.stderr
    complaint = finished.stderr.splitlines()[-1].casefold()
    assert f"node {name}" in complaint, finished.stderr
    assert "Traceback" not in finished.stderr
    return finished
