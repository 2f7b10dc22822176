"""A crowd of clients over HTTP, of whom a third leave and a tenth do not read: the others are served, nothing leaks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.lab.asking import MODEL
from tests.lab.process import Process, wait_until
from tests.lab.two_nodes import TwoNodes

URL = "http://127.0.0.1:7380"
READY_DEADLINE_S = 40.0
STREAMS = 40  # pages for so many answers and some to wait


@pytest.fixture
def coordinator(cluster: TwoNodes) -> Iterator[Process]:
    process = cluster.desk.start(["layerline", "coordinator", "--model", MODEL, "--context", "512"])
    process.wait_for("Ready:", deadline_s=READY_DEADLINE_S)
    yield process
    process.terminate()
    assert process.wait(deadline_s=20).exit_code == 0


def crowd(cluster: TwoNodes, clients: int, seconds: float, idle: int) -> dict[str, Any]:
    told = json.dumps({"url": URL, "clients": clients, "seconds": seconds, "idle": idle})
    finished = cluster.desk.run([sys.executable, "-m", "tests.lab.http_crowd", told], deadline_s=seconds + 120)
    assert finished.exit_code == 0, finished.stderr
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def at_work(cluster: TwoNodes) -> int:
    """Sequences that are not over."""
    told = cluster.desk.run(["layerline", "stats", "--json", "--coordinator", "127.0.0.1:7354"])
    return sum(json.loads(told.stdout)["sequences"].values())


@pytest.mark.slow
def test_too_many_requests_are_refused_at_once_while_those_taken_go_on(cluster: TwoNodes, coordinator: Process) -> None:
    told = json.dumps({"url": URL, "per_s": 60.0, "seconds": 20.0})
    finished = cluster.desk.run([sys.executable, "-m", "tests.lab.http_overload", told], deadline_s=180)
    assert finished.exit_code == 0, finished.stderr
    found = json.loads(finished.stdout)
    assert set(found["statuses"]) == {"200", "429"}
    assert (found["answers"], found["without_retry"]) == (1, 0)
    times_ms = sorted(found["refusals_ms"])
    print(f"{found['statuses']}: refused after {times_ms[int(0.99 * len(times_ms))]:.1f} ms at p99")
    wait_until(lambda: at_work(cluster) == 0, "the end of all answers", deadline_s=60)


@pytest.mark.parametrize(
    ("clients", "seconds", "idle"), [(30, 5.0, 50), pytest.param(300, 60.0, 1000, marks=pytest.mark.slow)]
)
def test_a_crowd_leaves_nothing_behind(
    cluster: TwoNodes, coordinator: Process, clients: int, seconds: float, idle: int
) -> None:
    crowd(cluster, clients, min(seconds, 15.0), idle)  # all that is made once is made
    wait_until(lambda: at_work(cluster) == 0, "the end of all answers", deadline_s=60)
    process = psutil.Process(coordinator.pid)
    descriptors, memory = process.num_fds(), process.memory_info().rss
    found = crowd(cluster, clients, seconds, idle)
    assert found["different"] == 0
    assert found["whole"] > 0
    assert set(found["statuses"]) <= {"200", "429"}
    wait_until(lambda: at_work(cluster) == 0, "the end of all answers", deadline_s=60)
    wait_until(lambda: process.num_fds() <= descriptors, "the end of all connections", deadline_s=30)
    assert process.memory_info().rss <= memory * 1.05
