"""The CPU of this machine and its parts are really measured, and what is not there really is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from node.daemon.devices.all_reduce import measure_in_children
from node.daemon.devices.measurements import UnmeasuredError
from node.daemon.devices.speed_child import BUSY_SHARE, core_times, waited_share
from node.daemon.devices.speeds import measure_in_child

pytestmark = pytest.mark.system


@pytest.mark.slow
async def test_the_cpu_is_measured_in_a_child() -> None:
    speed = await measure_in_child("cpu", 1)
    assert 1e8 < speed.matrix_flops_per_s < 1e16
    assert 1e8 < speed.memory_bytes_per_s < 1e13


def test_a_process_that_waits_for_a_core_knows_it() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    busy = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    try:
        with subprocess.Popen(busy, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            before, end = core_times(), time.thread_time() + 0.2
            while time.thread_time() < end:
                pass
            after = core_times()
            other.kill()
    finally:
        os.sched_setaffinity(0, allowed)
    assert waited_share(before, after) > BUSY_SHARE
    assert waited_share((0, 0), core_times(Path("/nowhere"))) == 0.0


@pytest.mark.slow
async def test_a_device_that_cannot_be_says_why() -> None:
    with pytest.raises(UnmeasuredError, match="device"):
        await measure_in_child("no-such-device", 1)


@pytest.mark.slow
async def test_the_all_reduce_between_parts_of_the_cpu_is_measured_in_children() -> None:
    assert 1 < await measure_in_children({"cpu:0": 1, "cpu:1": 1}) < 1e6


@pytest.mark.slow
async def test_ranks_that_cannot_measure_say_why() -> None:
    with pytest.raises(UnmeasuredError, match="device"):
        await measure_in_children({"cpu:0": 1, "no-such-device": 1})
