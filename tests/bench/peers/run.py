"""One run of the benchmark. A case that fails costs itself and those that come after it on the same machines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

import psutil

from tests.bench.effort import Effort
from tests.bench.figures import Figures
from tests.bench.models import BenchModel
from tests.bench.peers.cases import ALONE, CASES, Case
from tests.bench.peers.contest import running_contest
from tests.bench.peers.llama_cpp import LlamaCpp
from tests.lab.commands import LabError
from tests.lab.process import LateError

BUSY_S, BUSY_PERCENT = 1.0, 20.0
FAILURES = (LabError, LateError, RuntimeError, subprocess.CalledProcessError)


class Run:
    """What was `found` so far, and which cases `failed`."""

    def __init__(self, programs: LlamaCpp, effort: Effort) -> None:
        self.found: list[Figures] = []
        self.failed: list[str] = []
        self._programs = programs
        self._effort = effort

    def measure(self, model: BenchModel, names: Collection[str]) -> None:
        """Measures the cases of those names that are for `model`."""
        for alike in _on_the_same_machines(_possible(model, names)):
            self._measure_together(model, alike)
        for name in (name for name in ALONE if name in names):
            say(f"{model.key}: {name}")
            try:
                self.found.append(ALONE[name](model, name, self._effort))
            except FAILURES as error:
                self._fail(model, [name], error)

    def _measure_together(self, model: BenchModel, cases: Sequence[Case]) -> None:
        left = list(cases)
        _tell_if_busy()
        try:
            say(f"{model.key}: starting layerline")
            with running_contest(self._programs, model, cases[0].layout, cases[0].placement) as contest:
                while left:
                    say(f"{model.key}: {left[0].name}")
                    self.found.append(left[0].measure(contest, left[0].name, self._effort))
                    left.pop(0)
        except FAILURES as error:
            self._fail(model, [case.name for case in left], error)

    def _fail(self, model: BenchModel, names: Sequence[str], error: Exception) -> None:
        say(f"{model.key}: {', '.join(names)} failed: {error}")
        self.failed += [f"{name} of {model.key}" for name in names]


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)


def _tell_if_busy() -> None:
    """A figure of two threads is worth nothing where somebody else has one of their cores."""
    busy_percent = psutil.cpu_percent(BUSY_S)
    if busy_percent > BUSY_PERCENT:
        say(f"Others use {busy_percent:.0f}% of this machine's cores: the figures that follow are not to be quoted.")


def _possible(model: BenchModel, names: Collection[str]) -> Iterator[Case]:
    """The cases of those names that are for the model, but those that layerline cannot do, which are told."""
    for case in CASES:
        if case.name in names and model.key in case.models:
            if case.why_not:
                say(f"{model.key}: {case.name} is skipped: {case.why_not}.")
            else:
                yield case


def _on_the_same_machines(cases: Iterator[Case]) -> Iterator[list[Case]]:
    for _, alike in groupby(cases, key=lambda case: (case.layout, case.placement)):
        yield list(alike)
