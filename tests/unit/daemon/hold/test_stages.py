"""The stages of a hold: loaded, bound, lost and unloaded by the coordinator's number for each."""

from __future__ import annotations

from dataclasses import replace

from layerline.errors import (
    StageFailedError,
)
from layerline.hold import (
    Bound,
    Failed,
    Heartbeat,
    Load,
    Loaded,
    LoadProgress,
    Unload,
    Unloaded,
    Welcome,
    WorkerLost,
)
from tests.fakes.daemon_parts import FakeWorkers, bind_command, stage_spec
from tests.fakes.hold_wire import HELLO, FakeWire, in_virtual_time, make_admission, outcome, welcomed


@in_virtual_time
async def test_the_place_is_given_up_with_the_hold_and_the_stage_is_kept() -> None:
    workers = FakeWorkers()
    wire, admission = (
        FakeWire(HELLO, Load(command=1, stage=1, spec=stage_spec()), bind_command(1, command=2)),
        make_admission(workers),
    )
    attending = outcome(admission, wire)
    while not isinstance(await wire.next_event(), Bound):
        pass
    wire.say(None)
    await attending
    assert workers.spawned[0].told == ["start", "place", "vacate"]


@in_virtual_time
async def test_a_lost_worker_is_told_at_once() -> None:
    workers = FakeWorkers()
    wire, admission = FakeWire(HELLO, Load(command=1, stage=1, spec=stage_spec())), make_admission(workers)
    attending = outcome(admission, wire)
    while not isinstance(await wire.next_event(), Loaded):
        pass
    workers.spawned[0].die(StageFailedError("It was killed."))
    lost = await wire.next_event()
    assert isinstance(lost, WorkerLost)
    assert lost.stage == 1
    assert lost.error.message == "It was killed."
    wire.say(None)
    await attending


@in_virtual_time
async def test_stages_are_loaded_bound_lost_and_unloaded_by_their_numbers() -> None:
    workers, wire = FakeWorkers(), FakeWire(HELLO)
    one, two = Load(command=1, stage=1, spec=stage_spec("one")), Load(command=2, stage=7, spec=stage_spec("two"))
    attending, loaded = await welcomed(wire, make_admission(workers), one, two)
    assert loaded == Loaded(command=2, stage=7, data_port=4711, weights_bytes=1000, kv_bytes=500, adopted=False)
    wire.say(bind_command(1, command=3), replace(bind_command(2, command=4), stage=7))
    assert [await wire.next_event(), await wire.next_event()] == [
        Bound(command=3, next_address=""),
        Bound(command=4, next_address=""),
    ]
    assert [[place.epoch for place in worker.places] for worker in workers.spawned] == [[1], [2]]
    workers.spawned[0].die(StageFailedError("It was killed."))
    lost = await wire.next_event()
    assert isinstance(lost, WorkerLost)
    assert lost.stage == 1
    wire.say(replace(bind_command(3, command=5), stage=7), bind_command(4, command=6))
    assert await wire.next_event() == Bound(command=5, next_address="")
    refused = await wire.next_event()
    assert isinstance(refused, Failed)
    assert refused.error.message == "Node kitchen has no stage 1 loaded to bind."
    wire.say(Unload(command=7, stage=7))
    assert await wire.next_event() == Unloaded(command=7)
    assert workers.spawned[1].told == ["start", "place", "place", "stop"]
    wire.say(None)
    await attending


@in_virtual_time
async def test_a_number_that_is_loaded_again_is_another_stage_from_then_on() -> None:
    workers, wire = FakeWorkers(), FakeWire(HELLO)
    load = Load(command=1, stage=1, spec=stage_spec())
    again, other = replace(load, command=2), replace(load, command=3, spec=stage_spec(pages=9))
    attending, loaded = await welcomed(wire, make_admission(workers), load, again, other)
    assert isinstance(loaded, Loaded)
    assert not loaded.adopted
    assert [worker.told for worker in workers.spawned] == [["start", "stop"], ["start"]]
    wire.say(None)
    await attending


@in_virtual_time
async def test_the_loss_of_a_stage_that_this_coordinator_never_asked_for_is_not_told() -> None:
    workers, wire = FakeWorkers(), FakeWire(HELLO)
    admission = make_admission(workers)
    attending, _ = await welcomed(wire, admission, Load(command=1, stage=1, spec=stage_spec()))
    wire.say(None)
    await attending
    later = FakeWire(HELLO)
    attending = outcome(admission, later)
    assert isinstance(await later.next_event(), Welcome)
    workers.spawned[0].die(StageFailedError("It was killed."))
    later.say(Load(command=1, stage=1, spec=stage_spec()))
    assert isinstance(await later.next_event(skip=(Heartbeat, LoadProgress)), Loaded)
    later.say(None)
    await attending
