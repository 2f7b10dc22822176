"""A sequence whose rows are not numbers ends by itself, and nothing that was computed of it is kept for others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.scheduling.events import Failed, Token
from layerline.errors import ProtocolError, StageFailedError
from tests.fakes.schedulers import request, result, scheduler


def test_the_others_of_the_step_go_on() -> None:
    world = scheduler()
    world.add(request(1, 3))
    world.add(request(2, 3))
    step = world.next_step()
    failed, token = world.complete(replace(result(step, _2=7), failed=(1,)))
    assert isinstance(failed, Failed)
    assert failed.sequence == 1
    assert isinstance(failed.error, StageFailedError)
    assert "not numbers" in failed.error.message
    assert token == Token(sequence=2, token_id=7, position=3, first=True)
    step = world.next_step()
    assert step is not None
    assert [span.sequence for span in step.spans] == [2]
    world.check()


def test_a_chunk_that_failed_ends_the_sequence_and_is_not_cached() -> None:
    """Its second chunk is in flight already, and comes back without a word."""
    world = scheduler(max_in_flight=3)
    world.add(request(1, 16))
    first, second = world.next_step(), world.next_step()
    (failed,) = world.complete(replace(result(first), failed=(1,)))
    assert isinstance(failed, Failed)
    assert world.complete(replace(result(second), failed=(1,))) == ()
    assert world.idle
    assert (world.pool.used_pages, world.pool.cached_pages) == (0, 0)
    world.check()


def test_what_was_computed_before_stays_cached() -> None:
    world = scheduler(max_in_flight=1)
    world.add(request(1, 16))
    world.complete(result(world.next_step()))
    kept = world.pool.cached_pages + world.pool.used_pages
    world.complete(replace(result(world.next_step()), failed=(1,)))
    assert 0 < world.pool.cached_pages <= kept
    world.check()


def test_a_failure_of_a_sequence_that_is_not_in_the_step_is_no_result() -> None:
    world = scheduler()
    world.add(request(1, 3))
    step = world.next_step()
    with pytest.raises(ProtocolError, match="not in step 1"):
        world.complete(replace(result(step, _1=7), failed=(2,)))
