"""Programs on a machine of the lab that come before all else that runs there, as the workers of a cluster do."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench import usage
from tests.bench.peers.programs import last_words
from tests.lab.commands import LabError
from tests.lab.machine import Machine
from tests.lab.process import Process

RUN_DEADLINE_S = 900.0


def start_first(machine: Machine, words: Sequence[str], cores: Sequence[int]) -> Process:
    """Starts a program on those cores alone."""
    pinned = ["taskset", "-c", ",".join(map(str, cores)), *words]
    process = machine.start(pinned, GGML_NO_BACKTRACE="1")  # else llama.cpp starts a debugger when it fails
    usage.put_first([process.pid])
    return process


def run_first(machine: Machine, words: Sequence[str], cores: Sequence[int]) -> str:
    """The standard output of such a program; LabError if it fails."""
    finished = start_first(machine, words, cores).wait(deadline_s=RUN_DEADLINE_S)
    if finished.exit_code:
        raise LabError(f"{words[0]} failed with exit code {finished.exit_code}: {last_words(finished.stderr)}")
    return finished.stdout
