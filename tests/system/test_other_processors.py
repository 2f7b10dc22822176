"""The kernels of processors that these tests do not run on: compiled for them, and run by an emulator."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.lab.machine import REPOSITORY

SOURCES = REPOSITORY / "node" / "kernels" / "src"
COMPILER, EMULATOR = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", "-w", "-static", "-march=armv8.2-a+dotprod+fp16", "-DCOMPARED=neon"]
DEADLINE_S = 900.0


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None or EMULATOR is None, reason="needs g++-aarch64-linux-gnu and qemu-user")
def test_neon_gives_the_bits_of_plain_code(tmp_path: Path) -> None:
    program = tmp_path / "compare"
    files = [SOURCES / "kernels_neon.cpp", SOURCES / "kernels_plain.cpp", SOURCES / "panels.cpp"]
    compare = REPOSITORY / "tests" / "kernels" / "compare.cpp"
    subprocess.run([str(COMPILER), *FLAGS, "-o", program, compare, *files], check=True, timeout=DEADLINE_S)
    done = subprocess.run([str(EMULATOR), program], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert done.stdout == "neon and plain: 0 differences\n", done.stderr
