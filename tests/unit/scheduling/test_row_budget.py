"""Measured times decide how many steps are in flight and how many rows each has, also in virtual time."""

from __future__ import annotations

import statistics

import pytest

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.retry_estimate import RetryEstimate
from coordinator.scheduling.row_budget import LEAST_ROWS, RowBudget
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.steps_in_flight import StepsInFlight, decode_steps
from layerline.frames import StageTiming
from tests.fakes.cases import cases
from tests.fakes.timed_pipeline import StageCost, TimedPipeline

SLOW_CPU = StageCost(fixed_us=60_000, prompt_row_us=10_000, decode_row_us=4_000)
FAST_CPU = StageCost(fixed_us=60_000, prompt_row_us=2_000, decode_row_us=2_000)
ACCELERATOR = StageCost(fixed_us=8_000, prompt_row_us=30, decode_row_us=20)
LONG_PROMPT = 99


def timings(*compute_us: int) -> tuple[StageTiming, ...]:
    return tuple(StageTiming(stage_index=stage, compute_us=time) for stage, time in enumerate(compute_us))


def capacity(stages: int, max_rows: int) -> Capacity:
    return Capacity(
        pages=4096,
        page_tokens=16,
        max_rows=max_rows,
        chunk_tokens=max_rows,
        context_tokens=32768,
        max_in_flight=stages,
        max_waiting=256,
    )


def row_budget() -> RowBudget:
    """A budget that no pipeline bounds."""
    return RowBudget(capacity(1, 1 << 20))


def rows_beside_decodes(budget: RowBudget, decoding: int, steps: int) -> int:
    return budget.prompt_rows(decoding, steps, prompt_tokens=1, decode_rows=0)


def rows_alone(budget: RowBudget, prompt_tokens: int, steps: int) -> int:
    return budget.prompt_rows(0, steps, prompt_tokens=prompt_tokens, decode_rows=0)


def pipeline(stages: int, whole: StageCost, *, hop_us: int = 300, max_rows: int = 512) -> TimedPipeline:
    """A model that costs `whole`, in that many equal stages."""
    part = StageCost(
        fixed_us=whole.fixed_us // stages,
        prompt_row_us=whole.prompt_row_us // stages,
        decode_row_us=whole.decode_row_us // stages,
    )
    return TimedPipeline(Scheduler(capacity(stages, max_rows)), [part] * stages, hop_us=hop_us)


@pytest.mark.parametrize(
    ("stage_times_us", "hop_us", "steps"),
    [
        ((), 900, 2),
        ((100, 100), 0, 2),
        ((100, 100), 33, 2),
        ((100, 100), 34, 3),
        ((100, 40), 53, 2),  # the stages are unlike, and the slow one has more to do anyway
        ((100, 40), 54, 3),
    ],
)
def test_a_slow_link_takes_one_step_more(stage_times_us: tuple[int, ...], hop_us: int, steps: int) -> None:
    assert decode_steps(stage_times_us, hop_us, 2) == steps


def test_the_least_travel_ever_seen_is_what_links_take() -> None:
    wanted = StepsInFlight(2)
    assert wanted.decoding == 2
    wanted.learn(timings(100, 100), 200 + 150)
    assert wanted.decoding == 3
    wanted.learn(timings(100, 100), 200 + 30)
    wanted.learn(timings(100, 100), 200 + 900)
    assert wanted.decoding == 2, "what comes later than that waited for its turn"
    wanted.learn(timings(100), 900)
    assert wanted.decoding == 2, "not all stages have reported"


def test_before_anything_is_known_chunks_are_small() -> None:
    budget = row_budget()
    assert rows_alone(budget, 100_000, 1) == 64
    assert rows_beside_decodes(budget, 3, 2) == 16


def test_without_timings_nothing_is_learned() -> None:
    budget = row_budget()
    budget.learn((), decode_rows=1, prompt_rows=500)
    assert rows_beside_decodes(budget, 3, 2) == 16


def test_a_chunk_doubles_a_step_and_no_more() -> None:
    budget = row_budget()
    budget.learn(timings(30_000, 20_000), decode_rows=4, prompt_rows=0)
    budget.learn(timings(80_000, 70_000), decode_rows=4, prompt_rows=10)  # 5 ms a row
    assert rows_beside_decodes(budget, 8, 2) == 6
    assert rows_beside_decodes(budget, 1, 2) == LEAST_ROWS, (
        "a round was 50 ms, and is now two steps of 30 and the chunks"
    )


def test_chunks_grow_no_faster_than_twofold() -> None:
    budget = row_budget()
    budget.learn(timings(30_000), decode_rows=1, prompt_rows=0)
    budget.learn(timings(30_000), decode_rows=1, prompt_rows=10)
    assert rows_beside_decodes(budget, 1, 1) == 20


def test_slow_rows_still_go_on() -> None:
    budget = row_budget()
    budget.learn(timings(10), decode_rows=1, prompt_rows=0)
    budget.learn(timings(100_000), decode_rows=1, prompt_rows=1)
    assert rows_beside_decodes(budget, 1, 1) == LEAST_ROWS


def test_chunks_of_a_prompt_alone_fill_the_pipeline_within_a_second_a_step() -> None:
    budget = row_budget()
    budget.learn(timings(30_000, 30_000), decode_rows=1, prompt_rows=0)
    budget.learn(timings(350_000, 350_000), decode_rows=0, prompt_rows=64)  # 5 ms a row; any step takes as 6 rows
    assert rows_alone(budget, 2048, 1) == 208, "one stage: a second's worth"
    assert rows_alone(budget, 2048, 2) == 112, "the root of 2048 x 6"
    assert rows_alone(budget, 20, 2) == 16


def test_a_load_that_has_changed_is_measured_anew() -> None:
    budget = row_budget()
    budget.learn(timings(30_000), decode_rows=1, prompt_rows=0)
    for _ in range(64):
        budget.learn(timings(200_000), decode_rows=32, prompt_rows=8)
    assert rows_beside_decodes(budget, 1, 1) > 0
    assert rows_beside_decodes(budget, 32, 1) == 0
    budget.learn(timings(100_000), decode_rows=32, prompt_rows=0)
    assert rows_beside_decodes(budget, 32, 1) > 0


def test_a_full_queue_moves_when_a_request_ends() -> None:
    estimate = RetryEstimate()
    assert estimate.retry_after_s == 1
    for _ in range(3):
        estimate.learn(timings(900_000, 200_000))
    estimate.end_request()
    assert estimate.retry_after_s == 3


@pytest.mark.parametrize("cost", [SLOW_CPU, FAST_CPU, ACCELERATOR])
@pytest.mark.parametrize("stages", cases([1, 2, 3], more=[2]))
@pytest.mark.parametrize("streams", cases([1, 2, 8, 24], more=[2, 8]))
def test_answers_keep_their_pace_while_a_long_prompt_is_prefilled(streams: int, stages: int, cost: StageCost) -> None:
    run = pipeline(stages, cost)
    for stream in range(streams):
        run.ask(stream, 50, max_tokens=1000)
    run.run(until_tokens=60, of=streams - 1)
    before_us = statistics.median(run.gaps_us(0)[-20:])
    began_us = run.now_us
    run.ask(LONG_PROMPT, 4096)
    run.run(until_tokens=1, of=LONG_PROMPT)
    gaps_us = sorted(gap for stream in range(streams) for gap in run.gaps_us(stream, since_us=began_us))
    assert gaps_us[int(0.99 * len(gaps_us))] <= 2.5 * before_us
    alone = pipeline(stages, cost)
    alone.ask(LONG_PROMPT, 4096)
    alone.run()
    assert run.now_us - began_us <= 2.5 * alone.now_us, "and the prompt is not held up for them"


@pytest.mark.parametrize("chunks", [4, 16, 64])
def test_the_only_idle_time_of_a_prefill_is_filling_and_draining(chunks: int) -> None:
    run = pipeline(3, StageCost(fixed_us=60_000), hop_us=100, max_rows=32)
    run.ask(1, 32 * chunks)
    run.run()
    assert len(run.steps) == chunks
    idle_share = 1 - sum(run.busy_us) / (3 * run.now_us)
    assert idle_share == pytest.approx(2 / (chunks + 2), rel=0.05)


def test_three_stages_prefill_and_decode_nearly_three_times_as_fast() -> None:
    per_row = StageCost(prompt_row_us=3_000, decode_row_us=3_000)
    times_us: dict[tuple[str, int], int] = {}
    for stages in (1, 3):
        prefill = pipeline(stages, per_row, max_rows=32)
        prefill.ask(1, 64 * 32)
        prefill.run()
        times_us["prefill", stages] = prefill.now_us
        decode = pipeline(stages, per_row)
        for stream in range(24):
            decode.ask(stream, 1, max_tokens=200)
        decode.run()
        times_us["decode", stages] = decode.now_us
    assert times_us["prefill", 1] / times_us["prefill", 3] > 2.8
    assert times_us["decode", 1] / times_us["decode", 3] > 2.7


def test_a_short_prompt_behind_a_very_long_one_has_its_token_soon() -> None:
    """The rule of `share_rows`: it has half of the steps that come next if it has the fewest rows left."""
    run = pipeline(2, SLOW_CPU)
    run.ask(1, 30_000)
    run.run(until_steps=20)
    chunk = run.steps[-1].prompt_rows
    run.ask(2, 10_000)
    run.ask(3, 2 * chunk)
    run.run(until_tokens=1, of=3)
    in_flight, own = 3, 4
    assert len(run.steps) <= 20 + in_flight + own
    assert not run.token_times_us[1]
    run.run(until_tokens=1, of=1)
    assert len(run.token_times_us[2]) == 1, "fewer left than the oldest"


def test_a_long_prompt_goes_on_under_a_stream_of_short_ones() -> None:
    run = pipeline(2, ACCELERATOR, max_rows=64)
    run.ask(1, 3_000)
    for sequence in range(2, 250):
        run.ask(sequence, 64)
    run.run(until_tokens=1, of=1)
    rows_of_long = [sum(span.count for span in step.spans if span.sequence == 1) for step in run.steps]
    last = max(place for place, rows in enumerate(rows_of_long) if rows)
    shares = [rows / step.prompt_rows for rows, step in zip(rows_of_long[:last], run.steps[:last], strict=True)]
    assert min(shares) >= 0.5, "the oldest has half of every step"
    assert len(run.token_times_us) > 20, "and others get on beside it"
