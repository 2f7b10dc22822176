"""Programs that are run to their end outside the lab: fetching, unpacking and compiling."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.lab.commands import LabError
from tests.lab.process import LateError, Process


def require_programs(*names: str, purpose: str) -> None:
    """LabError naming those that are not on PATH."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise LabError(f"{purpose} needs {' and '.join(missing)}, not found on PATH")


def run_to_end(name: str, words: Sequence[str], *, folder: Path, deadline_s: float) -> None:
    """Runs a program. LabError, with `name`, if it fails or is late; nothing that it has started goes on then."""
    process = Process.start(name, words, environment=os.environ, folder=folder)
    try:
        finished = process.wait(deadline_s=deadline_s)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if isinstance(error, LateError):
            raise LabError(f"{name} took longer than {deadline_s:.0f} s") from error
        raise
    if finished.exit_code:
        raise LabError(f"{name} failed: {last_words(finished.stdout + finished.stderr)}")


def last_words(text: str) -> str:
    """The last line that a program said of an error, or the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing"])[-1]
