"""One coordinator's hold on this node: its commands obeyed one at a time, its heartbeats at once.

Whatever ends the hold (the stream, silence, a broken rule) cancels what is running, and the stage loses its
place but stays in memory. Knows nouns and no gRPC: reading and writing are given to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Protocol

from layerline.addresses import require_peer_address
from layerline.errors import DeadlineError, LayerlineError, PlanInvalidError, ProtocolError, StageFailedError
from layerline.holding import (
    Bind,
    Bound,
    Draining,
    Failed,
    Heartbeat,
    HoldCommand,
    HoldEvent,
    Load,
    Loaded,
    LoadProgress,
    Place,
    Unload,
    Unloaded,
    Welcome,
    WorkerLost,
)
from node.daemon.hold.outbox import Outbox
from node.daemon.stages.keeper import StageKeeper

HEARTBEAT_INTERVAL_S = 1.0
SILENCE_DEADLINE_S = 8.0
WRITE_DEADLINE_S = 8.0
MAX_COMMANDS = 16

log = logging.getLogger(__name__)
Work = Load | Bind | Unload


class Wire(Protocol):
    """The coordinator's stream."""

    async def read(self) -> HoldCommand | None:
        """The next command, None at the end; ProtocolError for what is none."""

    async def write(self, event: HoldEvent) -> None:
        """Sends an event; waits while the coordinator is behind."""


class Hold:
    """A hold that was granted; `run` is its life."""

    def __init__(self, wire: Wire, keeper: StageKeeper, *, node: str, node_id: str, is_local: bool) -> None:
        """`is_local` is whether the coordinator is on this machine, as its connection shows."""
        self._wire = wire
        self._keeper = keeper
        self._node = node
        self._node_id = node_id
        self._is_local = is_local
        self._outbox = Outbox()
        self._commands: asyncio.Queue[Work] = asyncio.Queue(maxsize=MAX_COMMANDS)
        self._stage: int | None = None  # the coordinator's number for what it has had loaded
        self._unloads_waiting = 0
        self._interruptible: asyncio.Task[HoldEvent] | None = None

    async def run(self) -> None:
        """Obeys until the coordinator ends the stream; raises what else ends the hold."""
        self._keeper.taken(self._lost)
        try:
            self._outbox.put(Welcome(node_id=self._node_id, last_epoch=self._keeper.last_epoch))
            await _until_one_ends(self._read(), self._obey_in_turn(), self._write(), self._beat())
        finally:
            await self._keeper.released()

    def _lost(self, error: LayerlineError) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:  # else it is one of an earlier hold, which this coordinator does not count on
            self._outbox.put(WorkerLost(stage=stage, error=error))

    def drain(self) -> None:
        """Tells the coordinator that this daemon is about to end."""
        self._outbox.put(Draining())

    async def _read(self) -> None:
        while True:
            try:
                async with asyncio.timeout(SILENCE_DEADLINE_S):
                    command = await self._wire.read()
            except TimeoutError:
                raise DeadlineError(
                    f"The coordinator gave node {self._node} no sign of life for {SILENCE_DEADLINE_S:.0f} s.",
                    node=self._node,
                    remedy="Check that its machine is not frozen.",
                ) from None
            if command is None:
                return
            self._take(command)

    def _take(self, command: HoldCommand) -> None:
        if isinstance(command, Heartbeat):
            return
        if not isinstance(command, Work):
            raise ProtocolError("A second hello came on one hold.", node=self._node)
        try:
            self._commands.put_nowait(command)
        except asyncio.QueueFull:
            message = f"Over {MAX_COMMANDS} commands are waiting on node {self._node}."
            raise ProtocolError(message, node=self._node) from None
        if isinstance(command, Unload):
            self._unloads_waiting += 1
            if self._interruptible:
                self._interruptible.cancel()

    async def _obey_in_turn(self) -> None:
        while True:
            command = await self._commands.get()
            running = asyncio.create_task(self._obey(command))
            self._interruptible = None if isinstance(command, Unload) else running
            self._outbox.put(await self._outcome(command, running))

    async def _outcome(self, command: Work, running: asyncio.Task[HoldEvent]) -> HoldEvent:
        try:
            await asyncio.wait({running})
        finally:
            await _ended(running)
        try:
            return running.result()
        except LayerlineError as error:
            error.node = error.node or self._node
            return Failed(command=command.command, error=error)
        except asyncio.CancelledError:
            message = f"Node {self._node} was told to unload before this was done."
            return Failed(command=command.command, error=StageFailedError(message, node=self._node))

    async def _obey(self, command: Work) -> HoldEvent:
        if isinstance(command, Unload):
            self._unloads_waiting -= 1
            if self._stage in (None, command.stage):
                self._stage = None
                await self._keeper.unload()
            return Unloaded(command=command.command)
        if self._unloads_waiting:
            raise asyncio.CancelledError
        self._check_number(command)
        if isinstance(command, Bind):
            return Bound(command=command.command, next_address=await self._keeper.bind(self._dialled(command.place)))
        return await self._load(command)

    def _check_number(self, command: Load | Bind) -> None:
        if isinstance(command, Bind) and command.stage != self._stage:
            raise ProtocolError(f"Node {self._node} has no stage {command.stage} loaded to bind.", node=self._node)
        if self._stage not in (None, command.stage):
            raise PlanInvalidError(
                f"Node {self._node} has stage {self._stage} and can have no other, such as stage {command.stage}.",
                node=self._node,
                remedy="Give the node neighbouring layers, as one stage.",
            )

    def _dialled(self, place: Place) -> Place:
        """`place` with those addresses of the next stage that may be dialled for this coordinator."""
        if place.next is None:
            return place
        allowed, against = [], ""
        for address in place.next.addresses:
            try:
                require_peer_address(address, loopback=self._is_local)
                allowed.append(address)
            except ValueError as error:
                against = against or str(error)
        if not allowed:
            message = f"Node {self._node} does not dial the data port of node {place.next.name}: {against}."
            raise ProtocolError(message, node=self._node, remedy="Give nodes addresses of their machines.")
        return replace(place, next=replace(place.next, addresses=tuple(allowed)))

    async def _load(self, load: Load) -> Loaded:
        def report(done_bytes: int, total_bytes: int) -> None:
            self._outbox.put(LoadProgress(command=load.command, done_bytes=done_bytes, total_bytes=total_bytes))

        self._stage = None  # until it is loaded: what was is ended first
        stage, adopted = await self._keeper.load(load.spec, report)
        self._stage = load.stage
        return Loaded(
            command=load.command,
            stage=load.stage,
            data_port=stage.started.port,
            weights_bytes=stage.started.weights_bytes,
            kv_bytes=stage.started.kv_bytes,
            adopted=adopted,
        )

    async def _write(self) -> None:
        while True:
            event = await self._outbox.next()
            try:
                async with asyncio.timeout(WRITE_DEADLINE_S):
                    await self._wire.write(event)
            except TimeoutError:
                message = f"The coordinator took nothing from node {self._node} for {WRITE_DEADLINE_S:.0f} s."
                raise DeadlineError(message, node=self._node) from None

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            self._outbox.put(Heartbeat())


async def _until_one_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Runs all until the first ends, then ends the others; raises what that first one raised."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # what the others make of their end is of no interest
    for task in done:
        task.result()


async def _ended(task: asyncio.Task[Any]) -> None:
    """Cancels `task` and waits for its end, whatever that is."""
    task.cancel()
    await asyncio.wait({task})
