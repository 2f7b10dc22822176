"""What the processes of a machine use: CPU time and memory, as the system counts them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import psutil

WORKER = "node.worker"


def cpu_s(pids: Iterable[int]) -> float:
    """Seconds of CPU that the processes have used in all their life."""
    total_s = 0.0
    for process in _processes(pids):
        times = process.cpu_times()
        total_s += times.user + times.system
    return total_s


def workers(pids: Iterable[int]) -> list[int]:
    """Those of the processes that are workers."""
    return [process.pid for process in _processes(pids) if WORKER in " ".join(process.cmdline())]


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory that the processes have in RAM."""
    return sum(process.memory_info().rss for process in _processes(pids))


def _processes(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)
