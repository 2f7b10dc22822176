"""Tells the daemon which experts rows choose: after so many steps, or a moment after the last of fewer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from layerline.frames import Frame
from layerline.step_result import StepResult
from node import pipe
from node.step.computation import StageExperts
from node.worker.stage_compute import Made, StageCompute

TOLD_STEPS = 32  # after which it is told at once, unless that was just done
LEAST_S = 0.1
MOST_S = 0.5


class ToldExperts:
    """The `StageCompute` that `compute` is, of which rank 0 has `experts`; `tell` says it to the daemon."""

    def __init__(
        self,
        compute: StageCompute,
        experts: StageExperts,
        tell: Callable[[pipe.FromWorker], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compute = compute
        self._experts = experts
        self._tell = tell
        self._clock = clock
        self._steps = 0  # since it was told
        self._told_s = clock()

    async def run(self, frame: Frame) -> Frame | StepResult:
        """Computes a step."""
        output = await self._compute.run(frame)
        self._steps += 1
        if self._steps >= TOLD_STEPS and self._clock() - self._told_s >= LEAST_S:
            await self.told()
        return output

    async def between(self, work: Callable[[], Made]) -> Made:
        """Does something between two steps."""
        return await self._compute.between(work)

    async def told(self) -> None:
        """Tells it now, if there was a step since it was told."""
        if self._steps:
            self._steps, self._told_s = 0, self._clock()
            chosen = await self._compute.between(self._experts.rows)
            if chosen:
                self._tell(pipe.ChosenExperts(layers=tuple(chosen), rows=tuple(chosen.values())))

    async def keep_telling(self) -> None:
        """Tells it again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(MOST_S)
            await self.told()
