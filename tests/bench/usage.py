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


def worker_bytes(pids: Iterable[int]) -> int:
    """Resident memory of the workers among the processes."""
    workers = [process for process in _processes(pids) if WORKER in " ".join(process.cmdline())]
    return sum(process.memory_info().rss for process in workers)


def _processes(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)
