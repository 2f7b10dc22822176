"""Measures one device through torch, apart from the daemon: `python -m node.daemon.devices.speed_child DEVICE THREADS`.

Prints one JSON object. The two numbers are those that decide how long a stage takes: products of large matrices
(prompts) and the reading of weights for one row (decoding). Both in bfloat16, as weights are held.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch

from node.daemon.child import end_with_parent

SECONDS_EACH = 0.7
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
        speeds = {
            "matrix_flops_per_s": _matrix_flops_per_s(device, rows, size),
            "memory_bytes_per_s": _memory_bytes_per_s(device),
        }
    print(json.dumps(speeds), flush=True)


def _matrix_flops_per_s(device: torch.device, rows: int, size: int) -> float:
    weight = torch.randn(size, size, dtype=torch.bfloat16, device=device)
    x = torch.randn(rows, size, dtype=torch.bfloat16, device=device)
    return 2.0 * rows * size * size / _seconds_per_call(device, lambda: torch.nn.functional.linear(x, weight))


def _memory_bytes_per_s(device: torch.device) -> float:
    rows, columns = (14336, 4096) if device.type == "cpu" else (65536, 8192)  # far larger than any cache
    weight = torch.zeros(rows, columns, dtype=torch.bfloat16, device=device)
    x = torch.zeros(1, columns, dtype=torch.bfloat16, device=device)
    seconds = _seconds_per_call(device, lambda: torch.nn.functional.linear(x, weight))
    return weight.numel() * weight.element_size() / seconds


def _seconds_per_call(device: torch.device, call: Callable[[], object]) -> float:
    """The shortest time that a call took: whatever else runs here only ever adds to it."""
    shortest, end = float("inf"), time.perf_counter() + SECONDS_EACH
    call()
    while time.perf_counter() < end or shortest == float("inf"):
        _synchronize(device)
        begin = time.perf_counter()
        call()
        _synchronize(device)
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


if __name__ == "__main__":
    main()
