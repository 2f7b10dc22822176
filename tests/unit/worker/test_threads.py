"""A process that cannot have the threads it takes says so before it needs them."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from layerline.errors import StageFailedError
from node.worker.threads import check_threads

LIMITED = """
import resource, sys
from node.worker.threads import check_threads
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (20 << 20),) * 2)
check_threads("kitchen")
"""


def test_enough_room_leaves_no_threads_behind() -> None:
    before = set(threading.enumerate())
    check_threads("kitchen")
    assert set(threading.enumerate()) <= before


def test_a_thread_that_cannot_be_started_is_an_error_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr("node.worker.threads.threading.Thread", NoThread)
    with pytest.raises(StageFailedError, match=r"node kitchen cannot have the 3 threads .*ulimit -v") as raised:
        check_threads("kitchen", 3)
    assert raised.value.node == "kitchen"


def test_a_real_limit_of_the_address_space_is_met_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False, timeout=60)
    assert "StageFailedError: A worker of node kitchen cannot have" in done.stderr
