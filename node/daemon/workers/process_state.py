"""What the system says of a child process at this moment: on Linux by each of its threads, elsewhere as a whole."""

from __future__ import annotations

from pathlib import Path

import psutil

from node.daemon.workers.silence import ProcessLook

PROC = Path("/proc")
MAX_STAT_BYTES = 1024
_STOPPED = frozenset("Tt")
_ACTIVE = frozenset("RD")  # runs or waits for a core; waits for a disk or for memory


def look_at(pid: int, proc: Path = PROC, *, closely: bool = True) -> ProcessLook | None:
    """What process `pid` is doing; None once it has ended. Not `closely`: as a whole, without its threads."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times, status = process.cpu_times(), process.status()
        states = (_thread_states(proc / str(pid) / "task") if closely else None) or _status_state(status)
    except psutil.Error:
        return None
    return ProcessLook(
        stopped=states <= _STOPPED, active=bool(states & _ACTIVE), cpu_s=float(times.user + times.system)
    )


def _thread_states(tasks: Path) -> set[str]:
    """The letters that Linux gives the threads' states; none where it cannot be read."""
    states = set()
    try:
        for task in tasks.iterdir():
            with open(task / "stat", "rb") as file:
                states.add(chr(file.read(MAX_STAT_BYTES).rpartition(b") ")[2][0]))
    except (OSError, IndexError):  # a thread that has just ended, or no Linux
        pass
    return states


def _status_state(status: str) -> set[str]:
    stopped = status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return {"T" if stopped else "R" if status in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP) else "S"}
