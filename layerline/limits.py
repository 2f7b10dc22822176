"""Limits that a process puts on itself before it works on what it must not trust: memory, processor time, files.

Where the system has no such limits nothing happens; whoever waits for the process has a deadline besides. Passing the
limit of processor time ends the process, passing that of memory fails the allocation, which Rust code does not survive.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from pathlib import Path

if sys.platform != "win32":
    import resource

_STATM = Path("/proc/self/statm")


def forbid_files() -> None:
    """From now on this process writes no files and leaves no core dump."""
    if sys.platform == "win32":
        return
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (0, 0))


def limit_further(*, memory_bytes: int, processor_s: float) -> None:
    """What this process may take beyond what it has now, until this is called again or `lift_limits`."""
    if sys.platform == "win32":
        return
    _set_soft(resource.RLIMIT_AS, _address_space_bytes() + memory_bytes)
    _set_soft(resource.RLIMIT_CPU, math.ceil(time.process_time() + processor_s))


def lift_limits() -> None:
    """Takes back what `limit_further` has limited."""
    if sys.platform == "win32":
        return
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU):
        _set_soft(limit, resource.RLIM_INFINITY)


def _set_soft(limit: int, value: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(limit)
        bounded = hard if value == resource.RLIM_INFINITY or value > hard != resource.RLIM_INFINITY else value
        resource.setrlimit(limit, (bounded, hard))


def _address_space_bytes() -> int:
    """What the process has mapped; where the system does not say, nothing is counted."""
    try:
        return int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
