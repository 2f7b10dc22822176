"""A stage in its place on the ring: takes a frame, computes it, hands the output on.

Knows no transport: what comes out goes into a `Sender`, be it a gRPC stream or a link in memory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from layerline.endings import NOT_FAILURES
from layerline.errors import LayerlineError, ProtocolError, StageFailedError
from layerline.frames import MAX_WAITED_US, Frame, StageTiming
from layerline.link import Sender
from layerline.step_result import StepResult
from node.worker.stage_compute import StageCompute

log = logging.getLogger(__name__)


class RingStage:
    """Obeys frames of one epoch, in growing order of their steps. `clock_ns` is monotonic."""

    def __init__(
        self,
        compute: StageCompute,
        *,
        node: str,
        epoch: int,
        stage_index: int,
        frames: Sender[Frame] | None,
        results: Sender[StepResult] | None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        assert (frames is None) != (results is None), "a stage has a next one or is the last"
        self._compute = compute
        self._node = node
        self._epoch = epoch
        self._stage_index = stage_index
        self._frames = frames
        self._results = results
        self._last_step = -1
        self._clock_ns = clock_ns
        self._done_ns: int | None = None  # when the output of the last step was handed on
        self._sending_us = 0  # how long that took

    async def accept(self, frame: Frame) -> None:
        """Computes one frame and hands its output on; waits while the next stage is behind."""
        waited_us = self._waited_us()
        self._check(frame)
        self._last_step = frame.step
        began_ns = self._clock_ns()
        output = await self._computed(frame)
        computed_ns = self._clock_ns()
        own = StageTiming(
            stage_index=self._stage_index,
            compute_us=(computed_ns - began_ns) // 1000,
            waited_us=waited_us,
            sending_us=self._sending_us,
        )
        await self._hand_on(replace(output, timings=(*frame.timings, own)))
        self._done_ns = self._clock_ns()
        self._sending_us = (self._done_ns - computed_ns) // 1000

    async def _hand_on(self, output: Frame | StepResult) -> None:
        if isinstance(output, Frame):
            assert self._frames is not None
            await self._frames.send(output)
        else:
            assert self._results is not None
            await self._results.send(output)

    def _waited_us(self) -> int:
        return 0 if self._done_ns is None else min((self._clock_ns() - self._done_ns) // 1000, MAX_WAITED_US)

    def _check(self, frame: Frame) -> None:
        if frame.epoch != self._epoch:
            message = f"A frame of epoch {frame.epoch} came to a stage of epoch {self._epoch}."
            raise ProtocolError(message, node=self._node)
        if frame.step <= self._last_step:
            raise ProtocolError(f"Step {frame.step} came after step {self._last_step}.", node=self._node)

    async def _computed(self, frame: Frame) -> Frame | StepResult:
        try:
            return await self._compute.run(frame)
        except LayerlineError as error:
            error.node = error.node or self._node
            raise
        except NOT_FAILURES:
            raise
        except BaseException as failure:  # the boundary to the computing library, of which a panic is no Exception
            log.exception("Step %d failed.", frame.step)
            raise StageFailedError(
                f"The stage on node {self._node} failed at a step of {frame.rows} rows ({failure}).",
                node=self._node,
                remedy="If memory ran out, give the node a smaller --memory or ask for a smaller --context.",
            ) from failure
