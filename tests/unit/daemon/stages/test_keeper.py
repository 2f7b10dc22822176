"""The keeper has stages, gives each back to whoever wants the same, and ends those that nobody has for a while."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

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
from layerline.peer import Peer
from node.daemon.stages.kept import KeptStage
from tests.fakes.daemon_parts import (
    DIGEST,
    FakeEpochs,
    FakeWorkers,
    held_and_left,
    ignore,
    ignore_loss,
    make_keeper,
    place_of,
    stage_spec,
)


async def test_a_stage_is_loaded_with_all_a_worker_must_know() -> None:
    workers, progress = FakeWorkers(), []
    keeper = make_keeper(workers.spawn)
    stage, adopted = await keeper.load(stage_spec(), lambda done, total: progress.append((done, total)))
    (start,) = workers.spawned[0].starts
    assert (start.model_path, start.card_path, start.host) == ("/models/tiny", "/cards/1.card", "127.0.0.1")
    assert (stage.started.port, adopted, progress) == (4711, False, [(1, 2)])
    (loaded,) = keeper.loaded
    assert (loaded.weights_bytes, loaded.kv_bytes) == (1000, 500)


async def test_pages_that_were_never_used_are_not_counted_as_taken() -> None:
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    assert keeper.own_bytes == {}
    await keeper.load(stage_spec(), ignore)
    held_bytes = keeper.own_bytes["cpu"]
    workers.spawned[0].resident_bytes = [held_bytes // 2]
    assert keeper.own_bytes == {"cpu": held_bytes // 2}
    workers.spawned[0].resident_bytes = [held_bytes * 2]
    assert keeper.own_bytes == {"cpu": held_bytes}


async def test_a_stage_that_is_idle_is_adopted_and_one_in_use_is_not() -> None:
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    first, _ = await keeper.load(stage_spec(), ignore)
    second, adopted = await keeper.load(stage_spec(), ignore)
    assert (adopted, len(workers.spawned)) == (False, 2)
    await keeper.released()
    keeper.taken(ignore_loss)
    again = [await keeper.load(stage_spec(), ignore) for _ in range(3)]
    assert [(stage in (first, second), adopted) for stage, adopted in again] == [
        (True, True),
        (True, True),
        (False, False),
    ]


async def test_a_stage_that_is_loaded_instead_of_another_ends_it_unless_it_is_the_same() -> None:
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    first, _ = await keeper.load(stage_spec(), ignore)
    assert await keeper.load(stage_spec(), ignore, instead_of=first) == (first, True)
    second, adopted = await keeper.load(stage_spec(pages=9), ignore, instead_of=first)
    assert (adopted, len(workers.spawned)) == (False, 2)
    assert workers.spawned[0].told == ["start", "stop"]
    assert [stage.spec for stage in keeper.loaded] == [second.spec]


BIG = 150_000  # pages: about 600 MiB in a budget of 1 GiB


async def test_stages_of_several_models_are_in_memory_together_and_are_counted_together() -> None:
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    one, _ = await keeper.load(stage_spec("one"), ignore)
    two, _ = await keeper.load(stage_spec("two"), ignore)
    assert [stage.spec.model for stage in keeper.loaded] == ["one", "two"]
    assert keeper.own_bytes == {"cpu": one.taken.on["cpu"].held + two.taken.on["cpu"].held}
    await keeper.unload(one)
    assert [stage.spec.model for stage in keeper.loaded] == ["two"]
    assert [worker.told for worker in workers.spawned] == [["start", "stop"], ["start"]]
    await keeper.unload(one)
    assert workers.spawned[0].told == ["start", "stop"]


async def test_a_stage_that_does_not_fit_beside_those_in_use_is_refused_and_says_what_holds_what() -> None:
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    await keeper.load(stage_spec("one", pages=BIG), ignore)
    words = r"layers 0 to 1 of two need \d+ MiB on cpu of node kitchen beside layers 0 to 1 of one \(.* MiB\)"
    with pytest.raises(PlanDoesNotFitError, match=f"(?i){words}, where 1.0 GiB"):
        await keeper.load(stage_spec("two", pages=BIG), ignore)
    assert [worker.told for worker in workers.spawned] == [["start"]]


async def test_a_stage_in_use_is_kept_where_another_is_refused_that_would_not_fit_even_alone() -> None:
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    await held_and_left(keeper)
    keeper.taken(ignore_loss)
    with pytest.raises(PlanDoesNotFitError):
        await keeper.load(stage_spec("two", pages=BIG * 4), ignore)
    assert workers.spawned[0].told == ["start", "vacate"]


async def test_several_stages_of_one_plan_are_placed_in_its_epoch() -> None:
    keeper = make_keeper(FakeWorkers().spawn)
    one, _ = await keeper.load(stage_spec("one"), ignore)
    two, _ = await keeper.load(stage_spec("two"), ignore)
    await keeper.bind(one, place_of(3))
    await keeper.bind(two, place_of(3))
    with pytest.raises(ProtocolError, match="epoch 3 after epoch 3"):
        await keeper.bind(two, replace(place_of(3), plan_key=b"x" * 16))
    await keeper.bind(two, place_of(4))
    with pytest.raises(ProtocolError, match="epoch 3 after epoch 4"):
        await keeper.bind(one, place_of(3))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"digest": "e" * 64}, ModelMismatchError, f"{DIGEST}.*{'e' * 64}"),
        ({"last_layer": 4}, PlanInvalidError, "which has 4 layers"),
        (
            {"pages": 1 << 22},
            PlanDoesNotFitError,
            "need .* GiB on cpu of node kitchen beside .* of tiny .*, where 1.0 GiB",
        ),
    ],
)
async def test_what_cannot_be_loaded_is_refused_before_anything_is_ended(
    changes: dict[str, Any], error: type[LayerlineError], words: str
) -> None:
    workers = FakeWorkers()
    keeper = make_keeper(workers.spawn)
    await keeper.load(stage_spec(), ignore)
    with pytest.raises(error, match=words):
        await keeper.load(stage_spec(**changes), ignore)
    assert keeper.loaded
    assert workers.spawned[0].told == ["start"]


async def test_a_worker_that_refuses_is_stopped() -> None:
    workers = FakeWorkers(fail_start=ModelCorruptError("short"))
    keeper = make_keeper(workers.spawn)
    with pytest.raises(ModelCorruptError):
        await keeper.load(stage_spec(), ignore)
    assert keeper.loaded == ()
    assert workers.spawned[0].told == ["start", "stop"]


async def test_a_load_that_is_cancelled_leaves_nothing() -> None:
    workers = FakeWorkers(hold_start=True)
    keeper = make_keeper(workers.spawn)
    loading = asyncio.create_task(keeper.load(stage_spec(), lambda _done, _total: started.set()))
    started = asyncio.Event()
    async with asyncio.timeout(5):
        await started.wait()
        loading.cancel()
        await asyncio.wait({loading})
    assert workers.spawned[0].told == ["start", "stop"]
    assert keeper.loaded == ()


async def test_epochs_only_grow_also_over_restarts() -> None:
    workers, epochs = FakeWorkers(), FakeEpochs(epoch=5)
    keeper = make_keeper(workers.spawn, epochs=epochs)
    stage, _ = await keeper.load(stage_spec(), ignore)
    for epoch in (5, 4):
        with pytest.raises(ProtocolError, match=f"epoch {epoch} after epoch 5"):
            await keeper.bind(stage, place_of(epoch))
    following = Peer(name="desk", addresses=("10.0.0.3:4000",))
    assert await keeper.bind(stage, place_of(6, following=following)) == "10.0.0.3:4000"
    assert (epochs.epoch, keeper.last_epoch) == (6, 6)
    (place,) = workers.spawned[0].places
    assert (place.epoch, place.stage_count, place.next) == (6, 2, following)


async def test_a_stage_whose_worker_is_lost_cannot_be_bound() -> None:
    workers, epochs = FakeWorkers(), FakeEpochs()
    keeper = make_keeper(workers.spawn, epochs=epochs)
    stage, _ = await keeper.load(stage_spec(), ignore)
    workers.spawned[0].die(StageFailedError("killed"))
    with pytest.raises(StageFailedError, match="killed"):
        await keeper.bind(stage, place_of(1))
    assert epochs.epoch == 0


async def test_a_lost_worker_is_told_to_the_holder_alone_with_its_stage() -> None:
    workers = FakeWorkers()
    lost: list[tuple[KeptStage, LayerlineError]] = []
    keeper = make_keeper(workers.spawn)
    keeper.taken(lambda stage, error: lost.append((stage, error)))
    one, _ = await keeper.load(stage_spec("one"), ignore)
    two, _ = await keeper.load(stage_spec("two"), ignore)
    workers.spawned[0].die(StageFailedError("killed"))
    assert [(stage, str(error)) for stage, error in lost] == [(one, "killed")]
    assert [stage.spec.model for stage in keeper.loaded] == ["two"]
    await keeper.bind(two, place_of(1))
    await keeper.released()
    workers.spawned[1].die(StageFailedError("killed again"))
    assert len(lost) == 1
    assert keeper.loaded == ()


async def test_an_epoch_that_no_plans_lead_to_is_refused_and_not_kept() -> None:
    epochs = FakeEpochs(epoch=5)
    keeper = make_keeper(FakeWorkers().spawn, epochs=epochs)
    stage, _ = await keeper.load(stage_spec(), ignore)
    for epoch in (MAX_EPOCH - 1, 6 + MAX_EPOCH_JUMP):
        with pytest.raises(ProtocolError, match=f"epoch {epoch} after epoch 5, and nobody"):
            await keeper.bind(stage, place_of(epoch))
    assert epochs.epoch == 5
    await keeper.bind(stage, place_of(5 + MAX_EPOCH_JUMP))
    assert epochs.epoch == 5 + MAX_EPOCH_JUMP
