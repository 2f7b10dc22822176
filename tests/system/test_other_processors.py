"""The kernels of processors that these tests do not run on give the bits of plain code, in an emulator."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from node.kernels.library import library
from tests.lab.machine import REPOSITORY

SOURCES, TESTS = REPOSITORY / "node" / "kernels" / "src", REPOSITORY / "tests" / "kernels"
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", "-w"]
DEADLINE_S = 900.0


def compared(name: str, compiler: str, flags: list[str], emulator: list[str], folder: Path) -> str:
    """What the comparison of the instruction set `name` with plain code says."""
    program = folder / "compare"
    files = [
        TESTS / "compare.cpp",
        *(SOURCES / file for file in (f"kernels_{name}.cpp", "kernels_plain.cpp", "panels.cpp")),
    ]
    words = [compiler, *FLAGS, f"-DCOMPARED={name}", *flags, "-o", str(program), *map(str, files)]
    subprocess.run(words, check=True, timeout=DEADLINE_S)
    done = subprocess.run([*emulator, str(program)], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_avx512_gives_the_bits_of_plain_code(tmp_path: Path) -> None:
    """Its operations are functions of plain C++ there."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    said = compared("avx512", compiler, [f"-I{TESTS / 'emulated'}"], [], tmp_path)
    assert said == "avx512 and plain: 0 differences\n"


@pytest.mark.slow
def test_avx_vnni_gives_the_bits_of_plain_code(tmp_path: Path) -> None:
    """Its one operation beyond AVX2 is a function there."""
    compiler = shutil.which("g++")
    if compiler is None or "avx2" not in library().instruction_sets:
        pytest.skip("needs g++ and a processor with AVX2")
    flags = ["-mavx2", "-mfma", "-mf16c", "-include", str(TESTS / "emulated_vnni.h")]
    assert compared("avxvnni", compiler, flags, [], tmp_path) == "avxvnni and plain: 0 differences\n"


@pytest.mark.slow
def test_neon_gives_the_bits_of_plain_code(tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs g++-aarch64-linux-gnu and qemu-user")
    flags = ["-static", "-march=armv8.2-a+dotprod+fp16"]
    assert compared("neon", compiler, flags, [emulator], tmp_path) == "neon and plain: 0 differences\n"
