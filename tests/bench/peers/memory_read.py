"""How fast one core reads memory when it does nothing else: the most that decoding can come to.

By a program in C, compiled here. Where there is no compiler numpy adds the numbers up, which may be slower than memory,
so that shares of it come out too large; it says so. `python -m tests.bench.peers.memory_read` is that one.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.bench.peers.programs import run_to_end

SOURCE = Path(__file__).with_suffix(".c")
READ_BYTES = 512 << 20  # far more than any cache
PASSES = 8
COMPILE_DEADLINE_S = 60.0


@contextmanager
def memory_reader() -> Iterator[list[str]]:
    """The words of a program that prints how many bytes a second it reads; it is there for the time of the block."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print(
            "No C compiler: memory is read by numpy, perhaps more slowly than it can be.", file=sys.stderr, flush=True
        )
        yield [sys.executable, "-m", "tests.bench.peers.memory_read"]
        return
    with tempfile.TemporaryDirectory(prefix="layerline-memory-read-") as folder:
        program = Path(folder) / "memory_read"
        words = [compiler, "-O3", "-march=native", str(SOURCE), "-o", str(program)]
        run_to_end("the compiler", words, folder=Path(folder), deadline_s=COMPILE_DEADLINE_S)
        yield [str(program), str(READ_BYTES), str(PASSES)]


def main() -> None:
    """Reads with numpy."""
    memory = np.ones(READ_BYTES // 8, dtype=np.int64)
    times_s = []
    for _ in range(PASSES):
        began_s = time.perf_counter()
        memory.sum()
        times_s.append(time.perf_counter() - began_s)
    print(f"{READ_BYTES / min(times_s):.0f}")


if __name__ == "__main__":
    main()
