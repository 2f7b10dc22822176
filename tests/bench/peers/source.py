"""The source of llama.cpp, which the source distribution of its Python package carries. Nothing is installed."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

from tests.bench.peers.programs import run_to_end
from tests.lab.commands import LabError

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
INSIDE = Path("vendor") / "llama.cpp"
FETCH_DEADLINE_S = 900.0  # pip also makes what it needs to read the package's name


def fetch_source(folder: Path) -> Path:
    """The folder of the source, brought into `folder`; LabError if it cannot be had."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n")  # checked before any of it runs
    words += ["--no-deps", "--no-binary=:all:", "--dest", str(folder), "--require-hashes", "--requirement", str(wanted)]
    try:
        run_to_end("pip", words, folder=folder, deadline_s=FETCH_DEADLINE_S)
    except LabError as error:
        raise LabError(f"{PACKAGE} {VERSION}, which has the source of llama.cpp, cannot be fetched: {error}") from error
    return _unpacked(next(folder.glob("*.tar.gz")), folder)


def _unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    source = folder / archive.name.removesuffix(".tar.gz") / INSIDE
    if not (source / "CMakeLists.txt").is_file():
        raise LabError(f"{archive.name} has no {INSIDE}")
    return source
