"""The program that measures the all-reduce between processes which share memory that has no name."""

from __future__ import annotations

import psutil
import pytest

from tests.bench.all_reduce import measure_between_processes

pytestmark = [pytest.mark.system, pytest.mark.slow]


def test_ranks_in_processes_of_their_own_sum_and_are_gone_then() -> None:
    times = measure_between_processes(ranks=3, values=100, dtype="float32", repeats=50)
    assert 0 < times.p50_us <= times.p99_us
    living = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    assert not [child for child in living if "all_reduce" in " ".join(child.cmdline())]
