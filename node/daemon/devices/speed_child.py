"""Measures one device through torch, apart from the daemon: `python -m node.daemon.devices.speed_child DEVICE THREADS`.

Prints one JSON object. The two numbers are those that decide how long a stage takes: products of large matrices
(prompts) and the reading of weights for one row (decoding). Both in bfloat16, as weights are held.

Each is measured in slices of time with pauses between, and the best slice counts, so that another program's moment does
not. Where this process waited for cores even in that one, the machine was busy, and `busy` says so.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from layerline.hosting.child import end_with_parent

SLICES = 8
SLICE_S = 0.12
PAUSE_S = 0.2
BUSY_SHARE = 0.1  # of the time in which threads wanted a core
ROWS = 128


def main() -> None:
    """Measures the device named on the command line."""
    end_with_parent()
    name, threads = sys.argv[1:]
    device = torch.device("cpu" if name.startswith("cpu") else name)  # cpu:1 is a part of the CPU like any other
    torch.set_num_threads(int(threads))
    size = 1024 if device.type == "cpu" else 8192
    rows = ROWS if device.type == "cpu" else size
    with torch.inference_mode():
        matrix_flops_per_s, busy = _matrix_flops_per_s(device, rows, size)
        memory_bytes_per_s, busy_too = _memory_bytes_per_s(device)
    busy = device.type == "cpu" and (busy or busy_too)
    speeds = {"matrix_flops_per_s": matrix_flops_per_s, "memory_bytes_per_s": memory_bytes_per_s, "busy": busy}
    print(json.dumps(speeds), flush=True)


def _matrix_flops_per_s(device: torch.device, rows: int, size: int) -> tuple[float, bool]:
    weight = torch.randn(size, size, dtype=torch.bfloat16, device=device)
    x = torch.randn(rows, size, dtype=torch.bfloat16, device=device)
    seconds, busy = _best_slice(device, lambda: torch.nn.functional.linear(x, weight))
    return 2.0 * rows * size * size / seconds, busy


def _memory_bytes_per_s(device: torch.device) -> tuple[float, bool]:
    rows, columns = (14336, 4096) if device.type == "cpu" else (65536, 8192)  # far larger than any cache
    weight = torch.zeros(rows, columns, dtype=torch.bfloat16, device=device)
    x = torch.zeros(1, columns, dtype=torch.bfloat16, device=device)
    seconds, busy = _best_slice(device, lambda: torch.nn.functional.linear(x, weight))
    return weight.numel() * weight.element_size() / seconds, busy


def _best_slice(device: torch.device, call: Callable[[], object]) -> tuple[float, bool]:
    """The shortest time that a call took, and whether its slice of time was shared with other programs."""
    call()
    slices = []
    for _ in range(SLICES):
        time.sleep(PAUSE_S)
        before = core_times()
        seconds = _seconds_per_call(device, call)
        slices.append((seconds, waited_share(before, core_times()) > BUSY_SHARE))
    return min(slices)


def _seconds_per_call(device: torch.device, call: Callable[[], object]) -> float:
    """The shortest time that a call took in one slice: whatever else runs here only ever adds to it."""
    shortest, end = float("inf"), time.perf_counter() + SLICE_S
    while time.perf_counter() < end or shortest == float("inf"):
        _synchronize(device)
        begin = time.perf_counter()
        call()
        _synchronize(device)
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def core_times(tasks: Path = Path("/proc/self/task")) -> tuple[int, int]:
    """How long this process's threads have run and have waited for a core, in nanoseconds; zeros if nobody tells."""
    run_ns = waited_ns = 0
    try:
        for task in tasks.iterdir():
            words = (task / "schedstat").read_text().split()
            run_ns, waited_ns = run_ns + int(words[0]), waited_ns + int(words[1])
    except (OSError, ValueError, IndexError):  # no Linux, or a kernel without these figures
        return 0, 0
    return run_ns, waited_ns


def waited_share(before: tuple[int, int], after: tuple[int, int]) -> float:
    """What part of the time in which threads wanted a core they waited for one."""
    ran_ns, waited_ns = after[0] - before[0], after[1] - before[1]
    return waited_ns / max(1, ran_ns + waited_ns)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


if __name__ == "__main__":
    main()
