"""How a worker's event loop computes a step: at once on a CPU, in a thread for any other device.

A CPU computes on the loop, since the worker has nothing else to do meanwhile and a change of threads would only cost. A
device of another kind computes while Python waits for it, so that the loop is free to take the next frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from layerline.frames import Frame
from layerline.step_result import StepResult

Made = TypeVar("Made")


class RankCompute(Protocol):
    """What computes the layers in this process: `node.stage.Stage`, or a fake in tests."""

    def run(self, frame: Frame) -> Frame | StepResult:
        """The frame for the next stage, or the result if this is the last; neither has timings.

        ProtocolError for a frame that is not for these layers, before anything is allocated.
        """


class StageCompute(Protocol):
    """A `RankCompute` that is awaited."""

    async def run(self, frame: Frame) -> Frame | StepResult:
        """As `RankCompute.run`. Steps are computed in the order of the calls."""

    async def between(self, work: Callable[[], Made]) -> Made:
        """What `work` makes between two steps, where these are computed."""


class OnLoop:
    """Computes at once, on the event loop."""

    def __init__(self, compute: RankCompute) -> None:
        self._compute = compute

    async def run(self, frame: Frame) -> Frame | StepResult:
        """As `RankCompute.run`."""
        return self._compute.run(frame)

    async def between(self, work: Callable[[], Made]) -> Made:
        """No step is computed while somebody else has the event loop."""
        return work()


class InThread:
    """Computes in `thread`, which has one thread only, so that steps stay in order."""

    def __init__(self, compute: RankCompute, thread: Executor) -> None:
        self._compute = compute
        self._thread = thread

    async def run(self, frame: Frame) -> Frame | StepResult:
        """As `RankCompute.run`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._compute.run, frame)

    async def between(self, work: Callable[[], Made]) -> Made:
        """In the thread, which does one thing at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


@contextmanager
def awaited(compute: RankCompute, device: str) -> Iterator[StageCompute]:
    """`compute` as its `device` is best waited for, for the time of the block."""
    if device.startswith("cpu"):
        yield OnLoop(compute)
        return
    with ThreadPoolExecutor(1, "compute") as thread:
        yield InThread(compute, thread)
