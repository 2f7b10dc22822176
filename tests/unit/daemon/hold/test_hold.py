"""One coordinator's hold: its rules and its deadlines, in virtual time and without a network."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from layerline.errors import (
    DeadlineError,
    LayerlineError,
    NodeDrainingError,
    NodeHeldError,
    ProtocolError,
    WireVersionError,
)
from layerline.hold import (
    Bound,
    Draining,
    Heartbeat,
    HoldCommand,
    HoldHello,
    Load,
    Loaded,
    LoadProgress,
    Unload,
    Unloaded,
    Welcome,
)
from layerline.version import WIRE_VERSION
from tests.fakes.daemon_parts import bind_command, stage_spec
from tests.fakes.hold_wire import ADDRESS, HELLO, FakeWire, in_virtual_time, make_admission, outcome
from tests.fakes.virtual_time import run_in_virtual_time


@in_virtual_time
async def test_a_hold_from_hello_to_its_end() -> None:
    wire, admission = FakeWire(HELLO), make_admission()
    attending = outcome(admission, wire)
    assert await wire.next_event() == Welcome(node_id="k1", last_epoch=0)
    assert admission.holder is not None
    assert (admission.holder.coordinator, admission.holder.address) == ("desk", ADDRESS)
    assert not admission.holder.takes_requests
    wire.say(Load(command=1, stage=1, spec=stage_spec()))
    progress = await wire.next_event(skip=(Heartbeat,))
    assert progress == LoadProgress(command=1, done_bytes=1, total_bytes=2)
    assert await wire.next_event() == Loaded(
        command=1, stage=1, data_port=4711, weights_bytes=1000, kv_bytes=500, adopted=False
    )
    wire.say(bind_command(1, command=2))
    assert await wire.next_event() == Bound(command=2, next_address="")
    wire.say(Unload(command=3, stage=1))
    assert await wire.next_event() == Unloaded(command=3)
    wire.say(None)
    await attending
    assert admission.holder is None


@in_virtual_time
async def test_a_holder_that_takes_requests_is_named_by_where_it_does() -> None:
    wire, admission = FakeWire(HoldHello.of("desk", port=7355)), make_admission()
    attending = outcome(admission, wire)
    await wire.next_event()
    assert admission.holder is not None
    assert (admission.holder.address, admission.holder.takes_requests) == ("10.0.0.9:7355", True)
    wire.say(None)
    await attending


@pytest.mark.parametrize(
    ("commands", "error", "words"),
    [
        ((), ProtocolError, "No hello came within 5 s"),
        ((None,), ProtocolError, "not a hello"),
        ((Heartbeat(),), ProtocolError, "not a hello"),
        (
            (replace(HELLO, wire_version=99),),
            WireVersionError,
            f"desk at .* 99, node kitchen speaks {WIRE_VERSION}",
        ),
        ((HELLO, HELLO), ProtocolError, "second hello"),
        ((HELLO,), DeadlineError, "no sign of life for 8 s"),
    ],
)
def test_what_breaks_the_rules_ends_the_hold(
    commands: tuple[HoldCommand, ...], error: type[LayerlineError], words: str
) -> None:
    async def attend() -> None:
        await make_admission().attend(FakeWire(*commands), ADDRESS)

    with pytest.raises(error, match=words):
        run_in_virtual_time(attend())


@in_virtual_time
async def test_a_second_coordinator_is_told_who_holds_the_node_and_gets_it_afterwards() -> None:
    first, second, admission = FakeWire(HELLO), FakeWire(HELLO), make_admission()
    holding = outcome(admission, first)
    await first.next_event()
    with pytest.raises(NodeHeldError, match=f"held by the coordinator desk at {ADDRESS}"):
        await admission.attend(second, "10.0.0.8:1")
    second.say(HELLO)
    waiting = outcome(admission, second)
    await asyncio.sleep(0)
    first.say(None)
    await holding
    assert isinstance(await second.next_event(), Welcome)
    second.say(None)
    await waiting


@in_virtual_time
async def test_heartbeats_go_both_ways_and_keep_the_hold() -> None:
    wire, admission = FakeWire(HELLO), make_admission()
    attending = outcome(admission, wire)
    await wire.next_event()
    for _ in range(20):
        assert await wire.next_event(skip=()) == Heartbeat()
        wire.say(Heartbeat())
    wire.say(None)
    await attending


@in_virtual_time
async def test_a_coordinator_that_takes_nothing_is_left() -> None:
    wire, admission = FakeWire(HELLO), make_admission()
    wire.reads_nothing = True
    attending = outcome(admission, wire)
    beating = asyncio.create_task(_beat_for_ever(wire))
    with pytest.raises(DeadlineError, match="took nothing"):
        await attending
    beating.cancel()


async def _beat_for_ever(wire: FakeWire) -> None:
    while True:
        await asyncio.sleep(1)
        wire.say(Heartbeat())


@in_virtual_time
async def test_draining_is_told_and_waits_for_the_coordinator_to_leave() -> None:
    wire, admission = FakeWire(HELLO), make_admission()
    attending = outcome(admission, wire)
    await wire.next_event()
    draining = asyncio.create_task(admission.drain(2.0))
    assert await wire.next_event() == Draining()
    assert not draining.done()
    with pytest.raises(NodeDrainingError):
        await admission.attend(FakeWire(HELLO), ADDRESS)
    wire.say(None)
    await attending
    await draining


@in_virtual_time
async def test_draining_does_not_wait_for_ever() -> None:
    wire, admission = FakeWire(HELLO), make_admission()
    attending = outcome(admission, wire)
    await wire.next_event()
    await admission.drain(2.0)
    assert not attending.done()
    wire.say(None)
    await attending
