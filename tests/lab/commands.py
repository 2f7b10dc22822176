"""Running the system's own tools (`ip`, `tc`), with what they said in the error when they fail."""

from __future__ import annotations

import subprocess

TOOL_DEADLINE_S = 10.0


class LabError(Exception):
    """The lab itself could not do what it was asked to."""


def tool(*words: str) -> str:
    """The standard output of a system tool; LabError with its complaint if it fails or hangs."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TOOL_DEADLINE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{' '.join(words)}: {error}") from error
    if done.returncode:
        raise LabError(f"{' '.join(words)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
