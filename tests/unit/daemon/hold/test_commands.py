"""The commands on a hold: what cancels which, and that whatever one raises is its answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerline.errors import (
    ProtocolError,
)
from layerline.hold import (
    Failed,
    Heartbeat,
    Load,
    LoadProgress,
    Unload,
    Unloaded,
    Welcome,
)
from node.daemon.hold.hold import MAX_COMMANDS
from tests.fakes.daemon_parts import FakeWorkers, bind_command, stage_spec
from tests.fakes.hold_wire import ADDRESS, HELLO, FakeWire, in_virtual_time, make_admission, outcome, welcomed


@in_virtual_time
async def test_a_command_that_fails_does_not_end_the_hold() -> None:
    wire, admission = FakeWire(HELLO, bind_command(1, command=5), Unload(command=6, stage=1)), make_admission()
    attending = outcome(admission, wire)
    await wire.next_event()
    failed = await wire.next_event()
    assert isinstance(failed, Failed)
    assert (failed.command, failed.error.node) == (5, "kitchen")
    assert await wire.next_event() == Unloaded(command=6)
    wire.say(None)
    await attending


@in_virtual_time
async def test_unload_cancels_a_load_and_what_waits_behind_it() -> None:
    workers = FakeWorkers(hold_start=True)
    wire, admission = FakeWire(HELLO), make_admission(workers)
    attending = outcome(admission, wire)
    wire.say(Load(command=1, stage=1, spec=stage_spec()), bind_command(1, command=2))
    assert isinstance(await wire.next_event(skip=(Welcome, Heartbeat)), LoadProgress)
    wire.say(Unload(command=3, stage=1))
    events = [await wire.next_event() for _ in range(3)]
    ended = [(type(event), event.command) for event in events if isinstance(event, (Failed, Unloaded))]
    assert ended == [(Failed, 1), (Failed, 2), (Unloaded, 3)]
    assert workers.spawned[0].told == ["start", "stop"]
    wire.say(None)
    await attending


@in_virtual_time
async def test_the_end_of_the_stream_cancels_a_load() -> None:
    workers = FakeWorkers(hold_start=True)
    wire, admission = FakeWire(HELLO, Load(command=1, stage=1, spec=stage_spec())), make_admission(workers)
    attending = outcome(admission, wire)
    assert isinstance(await wire.next_event(skip=(Welcome, Heartbeat)), LoadProgress)
    wire.say(None)
    await attending
    assert workers.spawned[0].told == ["start", "stop"]


@in_virtual_time
async def test_too_many_commands_end_the_hold() -> None:
    workers = FakeWorkers(hold_start=True)
    wire, admission = FakeWire(HELLO), make_admission(workers)
    wire.say(*(Load(command=number, stage=1, spec=stage_spec()) for number in range(MAX_COMMANDS + 2)))
    with pytest.raises(ProtocolError, match="commands are waiting"):
        await admission.attend(wire, ADDRESS)


@in_virtual_time
async def test_an_unload_cancels_what_is_running_for_its_own_stage_alone() -> None:
    workers = FakeWorkers(hold_start=True)
    wire, admission = FakeWire(HELLO), make_admission(workers)
    attending = outcome(admission, wire)
    wire.say(Load(command=1, stage=1, spec=stage_spec()))
    assert isinstance(await wire.next_event(skip=(Welcome, Heartbeat)), LoadProgress)
    wire.say(Unload(command=2, stage=7))
    for _ in range(100):
        assert isinstance(await wire.events.get(), Heartbeat)  # and no answer: the load is still running
        wire.say(Heartbeat())
    wire.say(Unload(command=3, stage=1))
    events = [await wire.next_event() for _ in range(3)]
    assert [(type(event), event.command) for event in events] == [(Failed, 1), (Unloaded, 2), (Unloaded, 3)]  # type: ignore[union-attr]
    wire.say(None)
    await attending


class Panic(BaseException):
    """What a library written in Rust raises when it panics."""


@in_virtual_time
async def test_whatever_a_command_raises_is_its_answer_and_the_hold_goes_on() -> None:
    workers, wire = FakeWorkers(fail_start=Panic("index out of bounds")), FakeWire(HELLO)
    attending, failed = await welcomed(wire, make_admission(workers), Load(command=1, stage=1, spec=stage_spec()))
    assert isinstance(failed, Failed)
    assert failed.error.message == "Node kitchen failed at a command (Panic: index out of bounds)."
    wire.say(Unload(command=2, stage=1))
    assert await wire.next_event() == Unloaded(command=2)
    wire.say(None)
    await attending


@in_virtual_time
async def test_commands_for_a_stage_that_is_not_there_touch_no_other() -> None:
    workers = FakeWorkers()
    wire = FakeWire(HELLO)
    load = Load(command=1, stage=1, spec=stage_spec())
    bind = replace(bind_command(1, command=2), stage=7)
    attending, refused = await welcomed(wire, make_admission(workers), load, bind)
    assert isinstance(refused, Failed)
    assert refused.error.message == "Node kitchen has no stage 7 loaded to bind."
    wire.say(Unload(command=3, stage=7))
    assert await wire.next_event(skip=(Heartbeat,)) == Unloaded(command=3)
    assert workers.spawned[0].told == ["start"]
    wire.say(None)
    await attending
