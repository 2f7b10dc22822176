"""One coordinator's hold: its rules and its deadlines, in virtual time and without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from layerline.errors import (
    DeadlineError,
    LayerlineError,
    NodeDrainingError,
    NodeHeldError,
    ProtocolError,
    StageFailedError,
    WireVersionError,
)
from layerline.holding import (
    Bind,
    Bound,
    Draining,
    Failed,
    Heartbeat,
    HoldCommand,
    HoldEvent,
    HoldHello,
    Load,
    Loaded,
    LoadProgress,
    Unload,
    Unloaded,
    Welcome,
    WorkerLost,
)
from layerline.peer import Peer
from layerline.version import WIRE_VERSION
from node.daemon.hold.admission import HoldAdmission
from node.daemon.hold.hold import MAX_COMMANDS
from node.daemon.hold.outbox import MAX_EVENTS, Outbox
from tests.fakes.daemon_parts import FakeWorkers, bind_command, make_keeper, stage_spec
from tests.fakes.virtual_time import run_in_virtual_time

HELLO = HoldHello.of("desk")
ADDRESS = "10.0.0.9:5000"


class FakeWire:
    """A coordinator whose commands the test puts in, and whose events it takes out."""

    def __init__(self, *commands: HoldCommand) -> None:
        self.commands: asyncio.Queue[HoldCommand | None] = asyncio.Queue()
        self.events: asyncio.Queue[HoldEvent] = asyncio.Queue()
        self.reads_nothing = False
        self.say(*commands)

    def say(self, *commands: HoldCommand | None) -> None:
        for command in commands:
            self.commands.put_nowait(command)

    async def read(self) -> HoldCommand | None:
        return await self.commands.get()

    async def write(self, event: HoldEvent) -> None:
        if self.reads_nothing:
            await asyncio.get_running_loop().create_future()
        self.events.put_nowait(event)

    async def next_event(self, *, skip: tuple[type, ...] = (Heartbeat, LoadProgress)) -> HoldEvent:
        while isinstance(event := await self.events.get(), skip):
            pass
        return event


def make_admission(workers: FakeWorkers | None = None) -> HoldAdmission:
    return HoldAdmission(make_keeper((workers or FakeWorkers()).spawn), node="kitchen", node_id="k1")


def in_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def body() -> None:
            await test()

        run_in_virtual_time(body())

    return run


def outcome(admission: HoldAdmission, wire: FakeWire) -> asyncio.Task[None]:
    return asyncio.create_task(admission.attend(wire, ADDRESS))


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
async def test_too_many_commands_end_the_hold() -> None:
    workers = FakeWorkers(hold_start=True)
    wire, admission = FakeWire(HELLO), make_admission(workers)
    wire.say(*(Load(command=number, stage=1, spec=stage_spec()) for number in range(MAX_COMMANDS + 2)))
    with pytest.raises(ProtocolError, match="commands are waiting"):
        await admission.attend(wire, ADDRESS)


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


async def test_progress_and_heartbeats_give_way_to_newer_ones_and_nothing_else_does() -> None:
    outbox = Outbox()
    for number in range(MAX_EVENTS * 2):
        outbox.put(LoadProgress(command=1, done_bytes=number, total_bytes=1000))
        outbox.put(Heartbeat())
    outbox.put(Unloaded(command=1))
    taken = [await outbox.next() for _ in range(3)]
    assert taken == [
        LoadProgress(command=1, done_bytes=MAX_EVENTS * 2 - 1, total_bytes=1000),
        Heartbeat(),
        Unloaded(command=1),
    ]


async def welcomed(
    wire: FakeWire, admission: HoldAdmission, *commands: HoldCommand
) -> tuple[asyncio.Task[None], HoldEvent]:
    """The hold, and the answer to the last of these commands."""
    attending = outcome(admission, wire)
    wire.say(*commands)
    for _ in commands:
        event = await wire.next_event(skip=(Welcome, Heartbeat, LoadProgress))
    return attending, event


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


def bind_to(*addresses: str) -> Bind:
    return bind_command(1, command=2, following=Peer(name="desk", addresses=addresses))


@in_virtual_time
async def test_only_addresses_of_machines_are_dialled_for_a_coordinator() -> None:
    for address in (
        "unix:/run/secret.sock",
        "unix:secret",
        "dns:///example.org:80",
        "example.org:80",
        "localhost:80",
        "127.0.0.1:6379",
        "[::1]:6379",
        "[::ffff:127.0.0.1]:6379",
        "169.254.169.254:80",
        "224.0.0.251:5353",
        "255.255.255.255:80",
        "0.0.0.0:80",
        "10.0.0.3",
        "10.0.0.3:0",
        "",
    ):
        workers, wire = FakeWorkers(), FakeWire(HELLO)
        load = Load(command=1, stage=1, spec=stage_spec())
        attending, refused = await welcomed(wire, make_admission(workers), load, bind_to(address))
        assert isinstance(refused, Failed), address
        assert isinstance(refused.error, ProtocolError)
        assert refused.error.message.startswith("Node kitchen does not dial the data port of node desk:")
        assert workers.spawned[0].places == []
        wire.say(None)
        await attending


@in_virtual_time
async def test_of_several_addresses_those_are_dialled_that_may_be() -> None:
    workers, wire = FakeWorkers(), FakeWire(HELLO)
    bind = bind_to("127.0.0.1:4000", "10.0.0.3:4000", "unix:/tmp/x", "[fe80::1%eth0]:4000")
    attending, bound = await welcomed(wire, make_admission(workers), Load(command=1, stage=1, spec=stage_spec()), bind)
    assert isinstance(bound, Bound)
    (place,) = workers.spawned[0].places
    assert place.next is not None
    assert place.next.addresses == ("10.0.0.3:4000", "[fe80::1%eth0]:4000")
    wire.say(None)
    await attending


@in_virtual_time
async def test_a_coordinator_on_this_machine_may_name_loopback_addresses() -> None:
    for own in ("127.0.0.1:999", "[::1]:999", "[::ffff:127.0.0.1]:999"):
        workers, wire = FakeWorkers(), FakeWire(HELLO)
        attending = asyncio.create_task(make_admission(workers).attend(wire, own))
        wire.say(Load(command=1, stage=1, spec=stage_spec()), bind_to("127.0.0.1:4000"))
        events = [await wire.next_event(skip=(Welcome, Heartbeat, LoadProgress)) for _ in range(2)]
        assert isinstance(events[-1], Bound)
        wire.say(None)
        await attending
