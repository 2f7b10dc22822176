"""Steps of known times add up to known sums, and to an estimate of what the links take."""

from __future__ import annotations

import pytest

from coordinator.stats.tally import StepRecord, Tally
from layerline.frames import StageTiming


def timing(stage: int, compute_ms: int, waited_ms: int = 0, sending_ms: int = 0) -> StageTiming:
    return StageTiming(
        stage_index=stage, compute_us=1000 * compute_ms, waited_us=1000 * waited_ms, sending_us=1000 * sending_ms
    )


def record(took_ms: float, *timings: StageTiming, idle_ms: float = 0, links: int = 3) -> StepRecord:
    return StepRecord(
        prompt_rows=3,
        decode_rows=2,
        took_us=1000 * took_ms,
        idle_us=1000 * idle_ms,
        timings=timings,
        link_bytes=tuple(range(20, 20 + links)),
    )


def tally_of(*records: StepRecord) -> Tally:
    tally = Tally.of(2)
    for one in records:
        tally.take(one)
    return tally


def test_times_of_stages_add_up_and_idle_time_is_nobodys_wait() -> None:
    tally = tally_of(
        record(100, timing(0, 20, waited_ms=500, sending_ms=1), timing(1, 30, waited_ms=510), idle_ms=490),
        record(90, timing(0, 20, waited_ms=0, sending_ms=2), timing(1, 30, waited_ms=5), idle_ms=0),
        record(90, timing(0, 20, waited_ms=50), timing(1, 30, waited_ms=10), idle_ms=2000),
    )
    first, last = tally.stages
    assert (first.computing.total_us, first.waiting_us, first.sending_us) == (60_000, 10_000, 3_000)
    assert (last.computing.total_us, last.waiting_us, last.sending_us) == (90_000, 25_000, 0)
    assert (tally.prompt_rows, tally.decode_rows, tally.steps.count) == (9, 6, 3)
    assert [(link.frames, link.payload_bytes, link.sending_us) for link in tally.links] == [
        (3, 60, 0),
        (3, 63, 3_000),
        (3, 66, 0),
    ]


@pytest.mark.parametrize("timings", [(), (timing(0, 1),), (timing(0, 1), timing(1, 1), timing(2, 1))])
def test_a_pipeline_that_does_not_tell_of_each_stage_is_counted_without_its_times(
    timings: tuple[StageTiming, ...],
) -> None:
    tally = tally_of(record(100, *timings))
    assert tally.steps.count == 1
    assert [stage.computing.count for stage in tally.stages] == [0, 0]
    assert tally.wire_us() == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("records", "wire_ms"),
    [
        # one at a time: what no stage computed was travel, shared out alike
        ([record(110, timing(0, 20, 90), timing(1, 30, 80))], [20, 20, 20]),
        ([record(110, timing(0, 20, 90), timing(1, 30, 80)), record(140, timing(0, 20, 90), timing(1, 30, 80))],
         [25, 25, 25]),
        # the sender's wait tells the slow link
        ([record(110, timing(0, 20, 90, sending_ms=30), timing(1, 30, 80))], [10, 40, 10]),
        # steps that met a queue at a stage do not count beside those that did not
        ([record(110, timing(0, 20, 90), timing(1, 30, 80)), record(900, timing(0, 20, 0), timing(1, 30, 80))],
         [20, 20, 20]),
        # if all met one, the least is taken
        ([record(140, timing(0, 20), timing(1, 30)), record(110, timing(0, 20), timing(1, 30))], [20, 20, 20]),
        # stages may say that they computed longer than the step was away
        ([record(10, timing(0, 20, 90), timing(1, 30, 80))], [0, 0, 0]),
        # more was sent than was on the way: a frame of the step before
        ([record(60, timing(0, 20, 90, sending_ms=30), timing(1, 30, 80))], [0, 30, 0]),
        ([], [0, 0, 0]),
    ],
)  # fmt: skip
def test_the_time_on_the_wire_is_what_no_stage_had(records: list[StepRecord], wire_ms: list[float]) -> None:
    assert [wire_us / 1000 for wire_us in tally_of(*records).wire_us()] == pytest.approx(wire_ms)


def test_merged_tallies_estimate_as_one() -> None:
    quick = tally_of(record(110, timing(0, 20, 90), timing(1, 30, 80)))
    quick.merge(tally_of(record(140, timing(0, 20, 90, sending_ms=10), timing(1, 30, 80))))
    assert [wire_us / 1000 for wire_us in quick.wire_us()] == pytest.approx([70 / 3, 70 / 3 + 5, 70 / 3], abs=2)
    assert (quick.steps.count, quick.prompt_rows, quick.least_travel_us) == (2, 6, 60_000)
