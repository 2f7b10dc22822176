"""The books on scripted pipelines: who was busy, who waited, and what a bubble is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.scheduling.events import Ended, Token
from coordinator.scheduling.figures import SchedulerFigures, SlotFigures
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.stats.recorder import Recorder
from layerline.frames import TensorBytes
from layerline.stats_report import SlotStats, StatsReport
from layerline.step_result import SampledToken, StepResult, TokenScores
from tests.fakes.booked_pipeline import BookedPipeline, HandClock, step
from tests.fakes.memory_ring import route

FIGURES = SchedulerFigures(
    sequences_waiting=1,
    sequences_prefilling=2,
    sequences_decoding=3,
    sequences_leaving=4,
    pages_used=5,
    pages_cached=6,
    pages_free=7,
    lookup_tokens=80,
    hit_tokens=20,
    preemptions=9,
    steps=10,
    steps_in_flight=11,
    decode_rows=12,
    prompt_rows=13,
)


def report(pipeline: BookedPipeline) -> StatsReport:
    return pipeline.recorder.report(FIGURES)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("chunks", [4, 16, 64])
def test_the_bubble_of_a_prefill_is_that_of_the_formula(stages: int, chunks: int) -> None:
    pipeline = BookedPipeline([0.1] * stages)
    for _ in range(chunks):
        pipeline.send(prompt_rows=16)
    for _ in range(chunks):
        pipeline.receive()
    formula = (stages - 1) / (chunks + stages - 1)
    period = report(pipeline).recent
    assert [stage.bubble_share for stage in period.stages] == pytest.approx([formula] * stages)
    assert (period.prompt_rows, period.decode_rows, period.rows_per_step) == (16 * chunks, 0, 16.0)


def test_a_stage_that_has_more_to_do_is_busy_and_the_others_wait_for_it() -> None:
    pipeline = BookedPipeline([0.1, 0.4])
    pipeline.send()
    for _ in range(20):
        pipeline.send()
        pipeline.receive()
    light, heavy = report(pipeline).recent.stages
    assert heavy.busy_share > 0.95 > 0.3 > light.busy_share
    assert heavy.waiting_share == pytest.approx(0.0)
    assert light.waiting_share == pytest.approx(1 - light.busy_share, abs=0.1)  # the last wait is not told
    assert (light.step_time.p50_s, heavy.step_time.p99_s) == (0.1, 0.4)


def test_one_step_at_a_time_over_a_slow_link_is_seen_on_links_and_stages() -> None:
    pipeline = BookedPipeline([0.1, 0.1], hop_s=[0.1, 0.1, 0.1])
    for _ in range(10):
        pipeline.send()
        pipeline.receive()
    period = report(pipeline).recent
    assert period.steps == 10
    assert period.steps_in_flight == pytest.approx(1.0)
    assert [link.wire_s for link in period.links] == pytest.approx([0.1] * 3)
    assert [link.wire_share for link in period.links] == pytest.approx([0.2] * 3)
    assert [stage.busy_share for stage in period.stages] == pytest.approx([0.2] * 2)
    assert [stage.waiting_share for stage in period.stages] == pytest.approx([0.72] * 2)  # the first wait is not told


def test_time_without_work_is_neither_waiting_nor_bubble() -> None:
    pipeline = BookedPipeline([0.1, 0.1])
    for _ in range(3):
        pipeline.send()
        pipeline.receive()
        pipeline.clock.now_s += 9.8
    period = report(pipeline).total
    assert (period.period_s, period.working_s, period.working_share) == pytest.approx((30.0, 0.6, 0.02))
    assert [stage.bubble_share for stage in period.stages] == pytest.approx([0.5, 0.5])
    assert [stage.waiting_s for stage in period.stages] == pytest.approx([0.2, 0.2])


def test_a_minute_later_only_the_total_knows() -> None:
    pipeline = BookedPipeline([0.1])
    pipeline.send()
    pipeline.receive()
    pipeline.clock.now_s += 61
    told = report(pipeline)
    assert (told.recent.steps, told.total.steps, told.recent.stages[0].busy_share) == (0, 1, 0.0)
    assert (told.recent.period_s, told.total.period_s, told.up_s) == pytest.approx((60.0, 61.1, 61.1), abs=1)
    assert told.diagnosis[0].startswith("Nothing was computed in the last")


def test_a_step_longer_than_the_period_makes_no_share_over_one() -> None:
    pipeline = BookedPipeline([100.0])
    pipeline.send()
    pipeline.receive()
    period = report(pipeline).recent
    assert (period.working_share, period.stages[0].busy_share, period.stages[0].bubble_share) == (1.0, 1.0, 0.0)


def test_what_is_in_flight_is_told_with_its_age() -> None:
    pipeline = BookedPipeline([0.1])
    assert (report(pipeline).steps_in_flight, report(pipeline).oldest_step_s) == (0, 0.0)
    pipeline.send()
    pipeline.clock.now_s += 40
    pipeline.send()
    told = report(pipeline)
    assert (told.steps_in_flight, told.oldest_step_s) == (2, 40.0)
    assert told.diagnosis[0].startswith("A step has been under way for 40 s")


def test_payload_is_counted_link_by_link() -> None:
    clock = HandClock()
    recorder = Recorder(route(3), clock)
    with recorder.sending(step(1, sequences=(1, 2))):
        clock.now_s += 0.25
    logits = TensorBytes(dtype="float32", shape=(5,), data=bytes(20))
    sampled = (
        SampledToken(sequence=1, position=1, token_id=1),
        SampledToken(sequence=2, position=1, token_id=1, logits=logits),
    )
    scores = TokenScores(sequence=3, position=1, log_probabilities=(-1.0, -2.0, -3.0))
    recorder.returned(StepResult(epoch=1, step=1, sampled=sampled, scores=(scores,)))
    links = recorder.report(FIGURES).recent.links
    assert [(link.sender, link.receiver) for link in links] == [
        ("coordinator", "n0"),
        ("n0", "n1"),
        ("n1", "n2"),
        ("n2", "coordinator"),
    ]
    assert [link.payload_bytes for link in links] == [8, 200, 200, 40]
    assert [link.sending_s for link in links] == [0.25, 0.0, 0.0, 0.0]


def test_requests_are_followed_from_the_queue_to_the_end() -> None:
    pipeline = BookedPipeline([0.5])
    pipeline.recorder.queued(SequenceRequest(sequence=1, token_ids=(1, 2, 3)))
    pipeline.recorder.refused()
    pipeline.clock.now_s += 2
    pipeline.send(prompt_rows=3)
    pipeline.receive(Token(sequence=1, token_id=4, position=3, first=True))
    pipeline.send()
    pipeline.receive(Token(sequence=1, token_id=5, position=4, first=False), Ended(sequence=1, reason="stop"))
    told = report(pipeline)
    (request,) = told.requests
    assert (request.queue_s, request.first_token_s, request.gap_mean_s) == (2.0, 2.5, 0.5)
    assert (request.finish_reason, told.counts.stop, told.counts.refused) == ("stop", 1, 1)
    assert told.recent.tokens == 2
    assert told.recent.tokens_per_s == pytest.approx(2 / 3)
    assert told.recent.first_token_time.p50_s == 2.5


def test_a_broken_pipeline_fails_what_runs() -> None:
    recorder = Recorder(route(1), HandClock())
    recorder.queued(SequenceRequest(sequence=1, token_ids=(1,)))
    recorder.failed()
    assert recorder.report(FIGURES).requests[0].finish_reason == "failed"


def test_figures_of_the_scheduler_are_handed_on() -> None:
    told = Recorder(route(1), HandClock()).report(FIGURES)
    assert (told.sequences.waiting, told.sequences.prefilling, told.sequences.decoding) == (1, 2, 3)
    assert (told.pages.used, told.pages.cached, told.pages.free, told.pages.preemptions) == (5, 6, 7, 9)
    assert told.pages.hit_share == 0.25


def test_slots_are_told_only_of_a_model_that_has_some() -> None:
    recorder = Recorder(route(1), HandClock())
    assert recorder.report(FIGURES).slots is None
    figures = replace(FIGURES, slots=SlotFigures(used=3, cached=2, free=1))
    assert recorder.report(figures).slots == SlotStats(used=3, cached=2, free=1)
