"""A stage in its place: whatever the computing library raises is the stage's failure, and names its node."""

from __future__ import annotations

import pytest

from layerline.errors import StageFailedError
from layerline.frames import Frame, PageRun, Span, TensorBytes
from layerline.link import MemoryLink
from layerline.step_result import StepResult
from node.worker.ring_stage import RingStage
from node.worker.stage_compute import OnLoop


class Panic(BaseException):
    """As a Rust library's is, which is no Exception."""


class Failing:
    """A stage that raises `failure`."""

    def __init__(self, failure: BaseException) -> None:
        self._failure = failure

    def run(self, frame: Frame) -> Frame | StepResult:
        raise self._failure


async def accept(failure: BaseException) -> None:
    span = Span(sequence=1, start=0, count=1, pages=(PageRun(first=0, count=1),))
    tensor = TensorBytes(dtype="int32", shape=(1,), data=bytes(4))
    stage = RingStage(
        OnLoop(Failing(failure)), node="attic", epoch=1, stage_index=0, frames=None, results=MemoryLink[StepResult]()
    )
    await stage.accept(Frame(epoch=1, step=1, spans=(span,), tensor=tensor))


@pytest.mark.parametrize("failure", [RuntimeError("boom"), Panic("boom")])
async def test_whatever_the_library_raises_is_the_failure_of_the_stage(failure: BaseException) -> None:
    with pytest.raises(
        StageFailedError, match=r"The stage on node attic failed at a step of 1 rows \(boom\)"
    ) as raised:
        await accept(failure)
    assert raised.value.node == "attic"


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
async def test_what_ends_the_process_does_so(ending: type[BaseException]) -> None:
    with pytest.raises(ending):
        await accept(ending())
