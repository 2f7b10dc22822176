"""A coordinator on the other side of a node's hold, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from layerline.hold import (
    Heartbeat,
    HoldCommand,
    HoldEvent,
    HoldHello,
    LoadProgress,
    Welcome,
)
from node.daemon.hold.admission import HoldAdmission
from tests.fakes.daemon_parts import FakeWorkers, make_keeper
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
    """The hold on a node with these workers."""
    return HoldAdmission(make_keeper((workers or FakeWorkers()).spawn), node="kitchen", node_id="k1")


def in_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Makes a test that waits for nothing of one that is awaited."""

    def run() -> None:
        async def body() -> None:
            await test()

        run_in_virtual_time(body())

    return run


def outcome(admission: HoldAdmission, wire: FakeWire) -> asyncio.Task[None]:
    """How the hold over `wire` ends."""
    return asyncio.create_task(admission.attend(wire, ADDRESS))


async def welcomed(
    wire: FakeWire, admission: HoldAdmission, *commands: HoldCommand
) -> tuple[asyncio.Task[None], HoldEvent]:
    """The hold, and the answer to the last of these commands."""
    attending = outcome(admission, wire)
    wire.say(*commands)
    for _ in commands:
        event = await wire.next_event(skip=(Welcome, Heartbeat, LoadProgress))
    return attending, event
