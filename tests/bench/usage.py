"""What the processes of a machine use: CPU time and memory, as the system counts them, and who comes first."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

WORKER = "node.worker"
PRIORITY = -15  # as `nice` counts; what the system itself needs stays before it


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


def put_first(pids: Iterable[int]) -> None:
    """Has the processes come before what else runs here, which would be measured too; where that is allowed."""
    for process in _processes(pids):
        with contextlib.suppress(psutil.AccessDenied):
            process.nice(PRIORITY)
        with contextlib.suppress(OSError):  # where sessions share the CPU, a process's own priority counts only inside
            Path(f"/proc/{process.pid}/autogroup").write_text(str(PRIORITY))


def keep_to(pids: Iterable[int], cores: Iterable[int]) -> None:
    """Has all threads of the processes, and what they start from now on, run on those cores alone."""
    for process in _processes(pids):
        for thread in process.threads():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread.id, cores)


def _processes(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)
