"""Which addresses of the next stage a node dials for its coordinator."""

from __future__ import annotations

import asyncio

from layerline.errors import (
    ProtocolError,
)
from layerline.hold import (
    Bind,
    Bound,
    Failed,
    Heartbeat,
    Load,
    LoadProgress,
    Welcome,
)
from layerline.peer import Peer
from tests.fakes.daemon_parts import FakeWorkers, bind_command, stage_spec
from tests.fakes.hold_wire import HELLO, FakeWire, in_virtual_time, make_admission, welcomed


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
