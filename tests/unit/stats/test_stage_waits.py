"""What a stage reports of the time in which it did not compute."""

from __future__ import annotations

from layerline.frames import MAX_WAITED_US, Frame, PageRun, Sampling, Span, StageTiming, TensorBytes
from layerline.step_result import StepResult
from node.worker.ring_stage import RingStage
from node.worker.stage_compute import OnLoop
from tests.fakes.echo_stage import EchoStage


class SlowSink:
    """A clock in milliseconds, and where products go: each takes as long as it is told."""

    def __init__(self, *sending_ms: int) -> None:
        self.now_ms = 100
        self.timings: list[StageTiming] = []
        self._sending_ms = list(sending_ms)

    def clock_ns(self) -> int:
        return self.now_ms * 1_000_000

    async def send(self, item: StepResult) -> None:
        self.timings.append(item.timings[-1])
        self.now_ms += self._sending_ms.pop(0)

    async def close(self) -> None: ...


class SlowStage(EchoStage):
    """A last stage that computes for 7 ms of the sink's clock."""

    def __init__(self, sink: SlowSink) -> None:
        super().__init__(last=True)
        self._sink = sink

    def run(self, frame: Frame) -> Frame | StepResult:
        self._sink.now_ms += 7
        return super().run(frame)


def frame(step: int) -> Frame:
    span = Span(sequence=1, start=0, count=1, pages=(PageRun(first=0, count=1),), draws=1, sampling=Sampling())
    tensor = TensorBytes(dtype="int32", shape=(1,), data=bytes(4))
    before = StageTiming(stage_index=0, compute_us=3, waited_us=5, sending_us=6)
    return Frame(epoch=1, step=step, spans=(span,), tensor=tensor, timings=(before,))


def last_stage(sink: SlowSink) -> RingStage:
    return RingStage(
        OnLoop(SlowStage(sink)), node="b", epoch=1, stage_index=1, frames=None, results=sink, clock_ns=sink.clock_ns
    )


async def test_a_stage_tells_how_long_it_waited_and_how_long_the_product_before_took() -> None:
    sink = SlowSink(20, 0, 0)
    stage = last_stage(sink)
    await stage.accept(frame(1))
    sink.now_ms += 7
    await stage.accept(frame(2))
    await stage.accept(frame(3))
    assert [(timing.waited_us, timing.sending_us) for timing in sink.timings] == [(0, 0), (7_000, 20_000), (0, 0)]
    assert [timing.compute_us for timing in sink.timings] == [7_000, 7_000, 7_000]


async def test_what_was_told_of_the_stages_before_stays() -> None:
    sent: list[StepResult] = []

    class Sink(SlowSink):
        async def send(self, item: StepResult) -> None:
            sent.append(item)

    await last_stage(Sink()).accept(frame(1))
    assert sent[0].timings[0] == StageTiming(stage_index=0, compute_us=3, waited_us=5, sending_us=6)


async def test_a_wait_of_days_fits_into_its_field() -> None:
    sink = SlowSink(0, 0)
    stage = last_stage(sink)
    await stage.accept(frame(1))
    sink.now_ms += 100 * 3_600_000
    await stage.accept(frame(2))
    assert sink.timings[1].waited_us == MAX_WAITED_US < 1 << 32
