"""A command that is started with standard streams closed, as services are, has the null device there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
for descriptor in {closed}:
    os.close(descriptor)
os.execv(sys.executable, [sys.executable, "-m", "layerline.cli.main", *{words}])
"""


def run(closed: tuple[int, ...], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM.format(closed=closed, words=list(words))]
    root = Path(__file__).parents[3]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=root)


def test_without_standard_output_nothing_breaks() -> None:
    finished = run((1,), "--version")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_without_standard_error_a_complaint_goes_nowhere_else() -> None:
    finished = run((2,), "nodes", "--no-mdns")
    assert (finished.returncode, finished.stdout) == (2, "")


def test_without_standard_input_it_is_empty() -> None:
    finished = run((0,), "prompt", "-", "--model", "m", "--no-mdns")
    assert finished.returncode == 2
    assert "Error" not in finished.stderr
    assert "layerline: error:" in finished.stderr


@pytest.mark.parametrize("option", ["--temperature", "--top-p", "--min-p", "--repetition-penalty"])
def test_no_number_is_no_number_for_any_option(option: str) -> None:
    finished = run((), "prompt", "hi", "--model", "m", option, "nan")
    assert finished.returncode == 2
    assert option in finished.stderr
    assert "nan" in finished.stderr
