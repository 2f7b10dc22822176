"""Where a step is computed: on the loop for a CPU, in one thread for any other device."""

from __future__ import annotations

import asyncio
import threading

import pytest

from layerline.frames import Frame, PageRun, Span, TensorBytes
from layerline.step_result import StepResult
from node.worker.stage_compute import awaited


class Witness:
    """Notes in which thread each step is computed, and waits to be let go on."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.threads: list[str] = []
        self.go_on = threading.Event()

    def run(self, frame: Frame) -> Frame | StepResult:
        self.go_on.wait(20)
        self.steps.append(frame.step)
        self.threads.append(threading.current_thread().name)
        return StepResult(epoch=1, step=frame.step)


def frame(step: int) -> Frame:
    span = Span(sequence=1, start=0, count=1, pages=(PageRun(first=0, count=1),))
    return Frame(epoch=1, step=step, spans=(span,), tensor=TensorBytes(dtype="int32", shape=(1,), data=bytes(4)))


@pytest.mark.parametrize("device", ["cpu", "cpu:1"])
async def test_a_cpu_computes_on_the_loop(device: str) -> None:
    witness = Witness()
    witness.go_on.set()
    with awaited(witness, device) as compute:
        assert (await compute.run(frame(1))).step == 1
    assert witness.threads == [threading.current_thread().name]


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps"])
async def test_another_device_leaves_the_loop_free_and_keeps_the_order(device: str) -> None:
    witness = Witness()
    with awaited(witness, device) as compute:
        running = [asyncio.create_task(compute.run(frame(step))) for step in range(3)]
        await asyncio.sleep(0)
        assert witness.steps == []
        witness.go_on.set()
        assert [output.step for output in await asyncio.gather(*running)] == [0, 1, 2]
    assert witness.steps == [0, 1, 2]
    assert set(witness.threads) == {"compute_0"}
