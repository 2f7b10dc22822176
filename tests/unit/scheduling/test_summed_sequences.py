"""Texts of which rows are summed: these events go in, exactly these steps and events come out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.scheduling.events import Ended, Event, Scored, Summed
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from layerline.errors import ProtocolError
from layerline.step_result import StepResult
from tests.fakes.schedulers import capacity, float_row, result, scheduler

TEXT = tuple(range(10, 31))


def issued(step: Step | None) -> list[tuple[int, int, int]]:
    """(start, count, rows that are summed) of each span."""
    assert step is not None
    return [(span.start, span.count, span.summed) for span in step.spans]


def run_to_the_end(world: Scheduler) -> list[Event]:
    events: list[Event] = []
    while (step := world.next_step()) is not None:
        events += world.complete(result(step))
    return events


def summed(rows: int, end: int) -> Summed:
    return Summed(sequence=1, rows=rows, total=float_row(end))


def test_all_rows_are_summed_chunk_by_chunk() -> None:
    world = scheduler(max_in_flight=3)
    world.add(SequenceRequest.summing(1, TEXT, "all"))
    steps = [world.next_step() for _ in range(3)]
    assert [issued(step) for step in steps] == [[(0, 8, 8)], [(8, 8, 8)], [(16, 5, 5)]]
    told = [world.complete(result(step)) for step in steps]
    assert told == [(summed(8, 8),), (summed(8, 16),), (summed(5, 21), Ended(sequence=1, reason="length"))]
    assert world.idle
    assert world.pool.free_pages == world.pool.pages


def test_the_last_row_is_told_with_the_last_chunk() -> None:
    world = scheduler()
    world.add(SequenceRequest.summing(1, TEXT, "last"))
    assert run_to_the_end(world) == [summed(1, 21), Ended(sequence=1, reason="length")]


def test_after_a_loss_only_the_rest_is_told() -> None:
    world = scheduler(max_in_flight=1)
    world.add(SequenceRequest.summing(1, TEXT, "all"))
    events = list(world.complete(result(world.next_step())))
    world.lose()
    world.renew(capacity())
    events += run_to_the_end(world)
    assert sum(event.rows for event in events if isinstance(event, Summed)) == len(TEXT)
    assert events[0] == summed(8, 8)
    assert events[-1] == Ended(sequence=1, reason="length")


@pytest.mark.parametrize("change", ["none", "rows", "end"])
def test_sums_that_were_not_asked_for_are_refused(change: str) -> None:
    world = scheduler()
    world.add(SequenceRequest.summing(1, TEXT, "all"))
    given = result(world.next_step())
    changed = {
        "none": (),
        "rows": tuple(replace(each, rows=each.rows - 1) for each in given.sums),
        "end": tuple(replace(each, end=each.end + 1) for each in given.sums),
    }
    with pytest.raises(ProtocolError, match="returned sums"):
        world.complete(replace(given, sums=changed[change]))
    assert world.complete(given)


def test_the_likeliest_beside_known_tokens_are_as_many_as_asked_for() -> None:
    world = scheduler()
    world.add(SequenceRequest.scoring(1, TEXT[:4], likeliest=2))
    step = world.next_step()
    assert step is not None
    assert [span.likeliest for span in step.spans] == [2]
    given = result(step)
    short = tuple(replace(each, likeliest_ids=(), likeliest_log_probabilities=()) for each in given.scores)
    with pytest.raises(ProtocolError, match="returned scores"):
        world.complete(StepResult(epoch=1, step=step.number, scores=short))
    (told, _) = world.complete(given)
    assert isinstance(told, Scored)
    assert (told.likeliest_ids, told.likeliest_log_probabilities) == ((0, 1) * 3, (-0.5,) * 6)
