"""The keeper has one stage, gives it back to whoever wants the same, and ends it when nobody has for a while."""

from __future__ import annotations

import asyncio

import pytest

from layerline.errors import (
    LayerlineError,
    ModelCorruptError,
    ModelMismatchError,
    PlanDoesNotFitError,
    PlanInvalidError,
    ProtocolError,
    StageFailedError,
)
from layerline.frames import MAX_EPOCH, MAX_EPOCH_JUMP
from layerline.holding import Peer
from node.daemon.stages.keeper import StageKeeper
from tests.fakes.daemon_parts import (
    DIGEST,
    FakeEpochs,
    FakeTimers,
    FakeWorkers,
    make_keeper,
    place_of,
    stage_spec,
)


def ignore(_done_bytes: int, _total_bytes: int) -> None:
    pass


def ignore_loss(_error: LayerlineError) -> None:
    pass


async def test_a_stage_is_loaded_with_all_a_worker_must_know():
    workers, progress = FakeWorkers(), []
    keeper = make_keeper(workers.spawn)
    stage, adopted = await keeper.load(stage_spec(), lambda done, total: progress.append((done, total)))
    (start,) = workers.spawned[0].starts
    assert (start.model_path, start.card_path, start.host) == ("/models/tiny", "/cards/1.card", "127.0.0.1")
    assert (stage.started.port, adopted, progress) == (4711, False, [(1, 2)])
    assert keeper.loaded is not None
    assert (keeper.loaded.weights_bytes, keeper.loaded.kv_bytes) == (1000, 500)


async def test_pages_that_were_never_used_are_not_counted_as_taken():
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    assert keeper.own_bytes == {}
    await keeper.load(stage_spec(), ignore)
    held_bytes = keeper.own_bytes["cpu"]
    workers.spawned[0].resident_bytes = [held_bytes // 2]
    assert keeper.own_bytes == {"cpu": held_bytes // 2}
    workers.spawned[0].resident_bytes = [held_bytes * 2]
    assert keeper.own_bytes == {"cpu": held_bytes}


async def test_the_same_stage_is_adopted_and_another_one_replaces_it():
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    await keeper.load(stage_spec(), ignore)
    _, adopted = await keeper.load(stage_spec(), ignore)
    assert (adopted, len(workers.spawned)) == (True, 1)
    _, adopted = await keeper.load(stage_spec(pages=9), ignore)
    assert (adopted, len(workers.spawned)) == (False, 2)
    assert workers.spawned[0].told == ["start", "stop"]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"digest": "e" * 64}, ModelMismatchError, f"{DIGEST}.*{'e' * 64}"),
        ({"last_layer": 4}, PlanInvalidError, "which has 4 layers"),
        ({"pages": 1 << 22}, PlanDoesNotFitError, "need .* GiB on cpu of node kitchen, where 1.0 GiB"),
    ],
)
async def test_what_cannot_be_loaded_is_refused_before_anything_is_ended(
    changes: dict[str, object], error: type[LayerlineError], words: str
):
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    await keeper.load(stage_spec(), ignore)
    with pytest.raises(error, match=words):
        await keeper.load(stage_spec(**changes), ignore)
    assert keeper.loaded is not None
    assert workers.spawned[0].told == ["start"]


async def test_a_worker_that_refuses_is_stopped():
    workers = FakeWorkers(fail_start=ModelCorruptError("short"))
    keeper = make_keeper(workers.spawn)
    with pytest.raises(ModelCorruptError):
        await keeper.load(stage_spec(), ignore)
    assert keeper.loaded is None
    assert workers.spawned[0].told == ["start", "stop"]


async def test_a_load_that_is_cancelled_leaves_nothing():
    workers = FakeWorkers(hold_start=True)
    keeper = make_keeper(workers.spawn)
    loading = asyncio.create_task(keeper.load(stage_spec(), lambda _done, _total: started.set()))
    started = asyncio.Event()
    async with asyncio.timeout(5):
        await started.wait()
        loading.cancel()
        await asyncio.wait({loading})
    assert workers.spawned[0].told == ["start", "stop"]
    assert keeper.loaded is None


async def test_epochs_only_grow_also_over_restarts():
    workers, epochs = FakeWorkers(), FakeEpochs(epoch=5)
    keeper = make_keeper(workers.spawn, epochs=epochs)
    await keeper.load(stage_spec(), ignore)
    for epoch in (5, 4):
        with pytest.raises(ProtocolError, match=f"epoch {epoch} after epoch 5"):
            await keeper.bind(place_of(epoch))
    following = Peer(node_id="d1", name="desk", addresses=("10.0.0.3:4000",))
    assert await keeper.bind(place_of(6, following=following)) == "10.0.0.3:4000"
    assert (epochs.epoch, keeper.last_epoch) == (6, 6)
    (place,) = workers.spawned[0].places
    assert (place.epoch, place.stage_count, place.next) == (6, 2, following)


async def test_nothing_can_be_bound_before_it_is_loaded():
    epochs = FakeEpochs()
    with pytest.raises(ProtocolError, match="nothing loaded"):
        await make_keeper(FakeWorkers().spawn, epochs=epochs).bind(place_of(1))
    assert epochs.epoch == 0


async def held_and_left(keeper: StageKeeper) -> None:
    keeper.taken(ignore_loss)
    await keeper.load(stage_spec(), ignore)
    await keeper.released()


async def test_a_stage_that_nobody_wants_any_more_is_ended_after_a_while():
    workers, timers = FakeWorkers(), FakeTimers()
    keeper = make_keeper(workers.spawn, timers=timers)
    await held_and_left(keeper)
    assert [delay_s for delay_s, _ in timers.waiting.values()] == [300.0]
    assert keeper.loaded is not None
    timers.go_off()
    async with asyncio.timeout(5):
        await keeper.close()
    assert workers.spawned[0].told == ["start", "vacate", "stop"]
    assert keeper.loaded is None


async def test_the_next_coordinator_calls_the_end_off():
    workers, timers = FakeWorkers(), FakeTimers()
    keeper = make_keeper(workers.spawn, timers=timers)
    await held_and_left(keeper)
    keeper.taken(ignore_loss)
    assert timers.waiting == {}
    _, adopted = await keeper.load(stage_spec(), ignore)
    assert adopted


async def test_a_timer_that_went_off_just_before_a_coordinator_came_ends_nothing():
    workers, timers = FakeWorkers(), FakeTimers()
    keeper = make_keeper(workers.spawn, timers=timers)
    await held_and_left(keeper)
    timers.go_off()
    keeper.taken(ignore_loss)
    _, adopted = await keeper.load(stage_spec(), ignore)
    assert adopted


async def test_a_lost_worker_is_told_to_the_holder_alone():
    workers, lost = FakeWorkers(), []
    keeper = make_keeper(workers.spawn)
    keeper.taken(lost.append)
    await keeper.load(stage_spec(), ignore)
    workers.spawned[0].die(StageFailedError("killed"))
    assert [str(error) for error in lost] == ["killed"]
    assert keeper.loaded is None
    await keeper.load(stage_spec(), ignore)
    await keeper.released()
    workers.spawned[1].die(StageFailedError("killed again"))
    assert len(lost) == 1
    assert keeper.loaded is None


async def test_an_epoch_that_no_plans_lead_to_is_refused_and_not_kept() -> None:
    epochs = FakeEpochs(epoch=5)
    keeper = make_keeper(FakeWorkers().spawn, epochs=epochs)
    await keeper.load(stage_spec(), ignore)
    for epoch in (MAX_EPOCH - 1, 6 + MAX_EPOCH_JUMP):
        with pytest.raises(ProtocolError, match=f"epoch {epoch} after epoch 5, and nobody"):
            await keeper.bind(place_of(epoch))
    assert epochs.epoch == 5
    await keeper.bind(place_of(5 + MAX_EPOCH_JUMP))
    assert epochs.epoch == 5 + MAX_EPOCH_JUMP
