"""The cores that this process may use: those it may run on, as far as its control groups leave it their time."""

from __future__ import annotations

import os

import psutil

from node.daemon.devices.cgroups import core_limit


def usable_cores() -> int:
    """Cores as the system counts them, of which a physical one may be two; at least one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(max(1, min(allowed, core_limit())))


def compute_threads() -> int:
    """How many threads compute fastest: one a physical core, since more only get in each other's way."""
    cores = usable_cores()
    return min(cores, psutil.cpu_count(logical=False) or cores)
