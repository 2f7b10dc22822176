"""Stages that no coordinator holds: kept for the next one for a while, and then ended."""

from __future__ import annotations

import asyncio

import pytest

from layerline.errors import PlanDoesNotFitError, StageFailedError
from layerline.facts import MAX_STAGES
from tests.fakes.daemon_parts import (
    FakeTimers,
    FakeWorkers,
    held_and_left,
    ignore,
    ignore_loss,
    make_keeper,
    stage_spec,
)

BIG = 150_000  # pages: about 600 MiB in a budget of 1 GiB


async def test_idle_stages_give_way_the_longest_idle_first_and_only_as_far_as_they_must() -> None:
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    for name in ("one", "two"):
        keeper.taken(ignore_loss)
        await keeper.load(stage_spec(name, pages=BIG // 2), ignore)
        await keeper.released()
    keeper.taken(ignore_loss)
    await keeper.load(stage_spec("small"), ignore)
    assert [stage.spec.model for stage in keeper.loaded] == ["one", "two", "small"]
    await keeper.load(stage_spec("three", pages=BIG), ignore)
    assert [stage.spec.model for stage in keeper.loaded] == ["two", "small", "three"]
    assert [worker.told for worker in workers.spawned][:2] == [["start", "vacate", "stop"], ["start", "vacate"]]


async def test_a_stage_that_nobody_wants_any_more_is_ended_after_a_while() -> None:
    workers, timers = FakeWorkers(), FakeTimers()
    keeper = make_keeper(workers.spawn, timers=timers)
    await held_and_left(keeper)
    assert [delay_s for delay_s, _ in timers.waiting.values()] == [300.0]
    assert keeper.loaded
    timers.go_off()
    async with asyncio.timeout(5):
        await keeper.close()
    assert workers.spawned[0].told == ["start", "vacate", "stop"]
    assert keeper.loaded == ()


async def test_the_next_coordinator_calls_the_end_off() -> None:
    workers, timers = FakeWorkers(), FakeTimers()
    keeper = make_keeper(workers.spawn, timers=timers)
    await held_and_left(keeper)
    keeper.taken(ignore_loss)
    assert len(timers.waiting) == 1  # from now on, as nobody has asked for it yet
    _, adopted = await keeper.load(stage_spec(), ignore)
    assert adopted
    assert timers.waiting == {}


async def test_a_timer_that_went_off_just_before_a_coordinator_came_ends_nothing() -> None:
    workers, timers = FakeWorkers(), FakeTimers()
    keeper = make_keeper(workers.spawn, timers=timers)
    await held_and_left(keeper)
    timers.go_off()
    keeper.taken(ignore_loss)
    _, adopted = await keeper.load(stage_spec(), ignore)
    assert adopted


async def test_a_stage_that_the_next_holder_does_not_want_is_ended_all_the_same() -> None:
    workers, timers = FakeWorkers(), FakeTimers()
    keeper = make_keeper(workers.spawn, timers=timers)
    await held_and_left(keeper)
    keeper.taken(ignore_loss)
    await keeper.load(stage_spec("two"), ignore)
    timers.go_off()
    await keeper.ending()
    assert [stage.spec.model for stage in keeper.loaded] == ["two"]


async def test_an_idle_stage_whose_worker_is_lost_is_not_adopted() -> None:
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    await held_and_left(keeper)
    workers.spawned[0].lost = StageFailedError("The worker of node kitchen was killed.", node="kitchen")
    keeper.taken(ignore_loss)
    stage, adopted = await keeper.load(stage_spec(), ignore)
    assert not adopted
    assert stage.worker is workers.spawned[1]


async def test_there_are_never_more_stages_than_a_node_can_tell_of() -> None:
    keeper = make_keeper(FakeWorkers().spawn, budget_bytes=1 << 40)
    keeper.taken(ignore_loss)
    await keeper.load(stage_spec("idle"), ignore)
    await keeper.released()
    keeper.taken(ignore_loss)
    for number in range(MAX_STAGES):
        await keeper.load(stage_spec(f"model-{number}"), ignore)
    assert [stage.spec.model for stage in keeper.loaded] == [f"model-{number}" for number in range(MAX_STAGES)]
    with pytest.raises(PlanDoesNotFitError, match="64 stages in use"):
        await keeper.load(stage_spec("one more"), ignore)
