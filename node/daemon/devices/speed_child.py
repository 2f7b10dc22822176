"""Measures one device, apart from the daemon: `python -m node.daemon.devices.speed_child DEVICE THREADS`.

Prints one JSON object. The two numbers are those that decide how long a stage takes: products of large matrices
(prompts) and the reading of weights for one row (decoding). Both by what computes stages here: the kernels, with 8-bit
weights, or torch in bfloat16.

Each is measured in slices of time with pauses between, and the best slice counts, so that another program's moment does
not. Where this process waited for cores even in that one, the machine was busy, and `busy` says so.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from layerline.hosting.child import end_with_parent
from node.kernels.library import kernels_here

SLICES = 8
SLICE_S = 0.12
PAUSE_S = 0.2
BUSY_SHARE = 0.1  # of the time in which threads wanted a core
ROWS = 128


class Products(Protocol):
    """What is measured: products of rows with a matrix that is far larger than any cache, or not."""

    is_cpu: bool
    large: tuple[int, int]
    """Rows and columns of the matrix that is read for one row."""
    square: tuple[int, int]
    """Rows, and rows and columns of the matrix that they are multiplied with."""

    def product(self, outputs: int, inputs: int, rows: int) -> tuple[Callable[[], object], int]:
        """Multiplies `rows` rows with a matrix, and the bytes of that matrix."""

    def synchronize(self) -> None:
        """Waits until what was begun is done."""


class TorchProducts:
    """By torch, in bfloat16."""

    def __init__(self, name: str, threads: int) -> None:
        import torch  # noqa: PLC0415  # which takes seconds

        self._torch = torch
        self._device = torch.device("cpu" if name.startswith("cpu") else name)  # cpu:1 is a part of the CPU
        torch.set_num_threads(threads)
        self.is_cpu = self._device.type == "cpu"
        self.large = (14336, 4096) if self.is_cpu else (65536, 8192)
        self.square = (ROWS, 1024) if self.is_cpu else (8192, 8192)

    def product(self, outputs: int, inputs: int, rows: int) -> tuple[Callable[[], object], int]:
        """Multiplies `rows` rows with a matrix, and the bytes of that matrix."""
        torch = self._torch
        weight = torch.zeros(outputs, inputs, dtype=torch.bfloat16, device=self._device)
        x = torch.zeros(rows, inputs, dtype=torch.bfloat16, device=self._device)

        def multiply() -> object:
            with torch.inference_mode():
                return torch.nn.functional.linear(x, weight)

        return multiply, weight.nbytes

    def synchronize(self) -> None:
        """Waits until what was begun is done."""
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)
        elif self._device.type == "mps":
            self._torch.mps.synchronize()


class KernelProducts:
    """By the kernels, with 8-bit weights."""

    is_cpu = True
    large = (14336, 4096)
    square = (ROWS, 1024)

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def product(self, outputs: int, inputs: int, rows: int) -> tuple[Callable[[], object], int]:
        """Multiplies `rows` rows with a matrix, and the bytes of that matrix."""
        from node.native.one_product import OneProduct  # noqa: PLC0415  # there may be no kernels

        product = OneProduct.of_ones(rows, outputs, inputs, "Q8_0", self._threads)
        return product.multiply, product.matrix_bytes

    def synchronize(self) -> None:
        """They are done when they return."""


def main() -> None:
    """Measures the device named on the command line."""
    end_with_parent()
    name, threads = sys.argv[1], int(sys.argv[2])
    by_kernels = name.startswith("cpu") and kernels_here()
    products: Products = KernelProducts(threads) if by_kernels else TorchProducts(name, threads)
    rows, size = products.square
    multiply, _ = products.product(size, size, rows)
    multiply_s, busy = _best_slice(products, multiply)
    read, read_bytes = products.product(*products.large, 1)
    read_s, busy_too = _best_slice(products, read)
    speeds = {
        "matrix_flops_per_s": 2.0 * rows * size * size / multiply_s,
        "memory_bytes_per_s": read_bytes / read_s,
        "busy": products.is_cpu and (busy or busy_too),
    }
    print(json.dumps(speeds), flush=True)


def _best_slice(products: Products, call: Callable[[], object]) -> tuple[float, bool]:
    """The shortest time that a call took, and whether its slice of time was shared with other programs."""
    call()
    slices = []
    for _ in range(SLICES):
        time.sleep(PAUSE_S)
        before = core_times()
        seconds = _seconds_per_call(products, call)
        slices.append((seconds, waited_share(before, core_times()) > BUSY_SHARE))
    return min(slices)


def _seconds_per_call(products: Products, call: Callable[[], object]) -> float:
    """The shortest time that a call took in one slice: whatever else runs here only ever adds to it."""
    shortest, end = float("inf"), time.perf_counter() + SLICE_S
    while time.perf_counter() < end or shortest == float("inf"):
        products.synchronize()
        begin = time.perf_counter()
        call()
        products.synchronize()
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


if __name__ == "__main__":
    main()
