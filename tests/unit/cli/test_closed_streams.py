"""A command that is started with standard streams closed, as services are, has the null device there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

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


def test_a_full_disk_behind_standard_output_is_told_as_such() -> None:
    program = "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'layerline.cli.main', '--version'])"
    with open("/dev/full", "w") as full:
        root = Path(__file__).parents[3]
        command = [sys.executable, "-c", program]
        finished = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False, cwd=root
        )
    assert finished.returncode == 74
    assert finished.stderr.startswith("layerline: error: No space left on device. Free space")


def test_a_full_folder_for_temporary_files_is_named(tmp_path: Path) -> None:
    limited = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
    program = f"{limited} os.execv(sys.executable, [sys.executable, '-m', 'layerline.cli.main', *sys.argv[1:]])"
    words = ["plan", "m", "--node", "127.0.0.1:1"]
    finished = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path)},
    )
    assert finished.returncode == 2
    assert "There is no folder for temporary files" in finished.stderr
    assert "TMPDIR" in finished.stderr


def test_a_module_that_hides_one_of_ours_is_named(tmp_path: Path) -> None:
    (tmp_path / "node.py").write_text("x = 1\n")
    finished = subprocess.run(
        [sys.executable, "-P", "-c", "from layerline.cli.main import main; main()", "nodes", "--node", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}"},
    )
    assert finished.returncode == 2
    assert f"{tmp_path / 'node.py'} hides layerline's package node" in finished.stderr
