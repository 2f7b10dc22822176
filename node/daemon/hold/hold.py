"""One coordinator's hold on this node: its commands obeyed one at a time, its heartbeats at once.

Whatever ends the hold (the stream, silence, a broken rule) cancels what is running, and the stages lose their
places but stay in memory. Knows nouns and no gRPC: reading and writing are given to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Protocol

from layerline.addresses import require_peer_address
from layerline.endings import NOT_FAILURES
from layerline.errors import (
    DeadlineError,
    InternalError,
    LayerlineError,
    ProtocolError,
    StageFailedError,
)
from layerline.hold import (
    HEARTBEATS,
    Bind,
    Bound,
    Draining,
    ExpertRows,
    ExpertsMoved,
    Failed,
    Heartbeat,
    Heartbeats,
    HoldCommand,
    HoldEvent,
    LayerRows,
    Load,
    Loaded,
    LoadProgress,
    MoveExperts,
    Place,
    Unload,
    Unloaded,
    Welcome,
    WorkerLost,
)
from node.daemon.hold.outbox import Outbox
from node.daemon.stages.keeper import StageKeeper
from node.daemon.stages.kept import KeptStage
from node.pipe import ChosenExperts

WRITE_DEADLINE_S = 8.0
MAX_COMMANDS = 16

log = logging.getLogger(__name__)
Work = Load | Bind | MoveExperts | Unload


class Wire(Protocol):
    """The coordinator's stream."""

    async def read(self) -> HoldCommand | None:
        """The next command, None at the end; ProtocolError for what is none."""

    async def write(self, event: HoldEvent) -> None:
        """Sends an event; waits while the coordinator is behind."""


class Hold:
    """A hold that was granted; `run` is its life."""

    def __init__(
        self,
        wire: Wire,
        keeper: StageKeeper,
        *,
        node: str,
        node_id: str,
        is_local: bool,
        heartbeats: Heartbeats = HEARTBEATS,
    ) -> None:
        """`is_local` is whether the coordinator is on this machine, as its connection shows."""
        self._wire = wire
        self._keeper = keeper
        self._node = node
        self._node_id = node_id
        self._is_local = is_local
        self._heartbeats = heartbeats
        self._outbox = Outbox(node)
        self._commands: asyncio.Queue[Work] = asyncio.Queue(maxsize=MAX_COMMANDS)
        self._stages: dict[int, KeptStage] = {}  # by the coordinator's number for each
        self._unloads_waiting: Counter[int] = Counter()  # by the same
        self._running: tuple[Work, asyncio.Task[HoldEvent]] | None = None

    async def run(self) -> None:
        """Obeys until the coordinator ends the stream; raises what else ends the hold."""
        self._keeper.taken(self._lost, self._experts_chosen)
        try:
            self._outbox.put(Welcome(node_id=self._node_id, last_epoch=self._keeper.last_epoch))
            await _until_one_ends(self._read(), self._obey_in_turn(), self._write(), self._beat())
        finally:
            await self._keeper.released()

    def _lost(self, lost: KeptStage, error: LayerlineError) -> None:
        for number, stage in list(self._stages.items()):
            if stage is lost:
                del self._stages[number]
                self._outbox.put(WorkerLost(stage=number, error=error))

    def _experts_chosen(self, stage: KeptStage, chosen: ChosenExperts) -> None:
        layers = tuple(
            LayerRows(layer=layer, rows=rows) for layer, rows in zip(chosen.layers, chosen.rows, strict=True)
        )
        for number, own in self._stages.items():
            if own is stage:
                self._outbox.put(ExpertRows(stage=number, layers=layers))

    def drain(self) -> None:
        """Tells the coordinator that this daemon is about to end."""
        self._outbox.put(Draining())

    async def _read(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._heartbeats.silence_s):
                    command = await self._wire.read()
            except TimeoutError:
                silence_s = self._heartbeats.silence_s
                raise DeadlineError(
                    f"The coordinator gave node {self._node} no sign of life for {silence_s:.0f} s.",
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
            remedy = "Wait for the answers to the commands before, as layerline's coordinator does."
            raise ProtocolError(message, node=self._node, remedy=remedy) from None
        if isinstance(command, Unload):
            self._unloads_waiting[command.stage] += 1
            if self._running and self._running[0].stage == command.stage and not isinstance(self._running[0], Unload):
                self._running[1].cancel()

    async def _obey_in_turn(self) -> None:
        while True:
            command = await self._commands.get()
            running = asyncio.create_task(self._obey(command))
            self._running = command, running
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
        except NOT_FAILURES:
            raise
        except BaseException as failure:  # the top of a command: a library's panic is no Exception
            log.exception("A command failed.")
            message = f"Node {self._node} failed at a command ({type(failure).__name__}: {failure})."
            remedy = "This is a bug; please report it with the node's log."
            return Failed(command=command.command, error=InternalError(message, node=self._node, remedy=remedy))

    async def _obey(self, command: Work) -> HoldEvent:
        if isinstance(command, Unload):
            self._unloads_waiting[command.stage] -= 1
            if stage := self._stages.pop(command.stage, None):
                await self._keeper.unload(stage)
            return Unloaded(command=command.command)
        if self._unloads_waiting[command.stage]:
            raise asyncio.CancelledError
        if isinstance(command, Bind):
            return await self._bind(command)
        if isinstance(command, MoveExperts):
            return await self._move_experts(command)
        return await self._load(command)

    async def _bind(self, bind: Bind) -> Bound:
        stage = self._stages.get(bind.stage)
        if stage is None:
            raise ProtocolError(f"Node {self._node} has no stage {bind.stage} loaded to bind.", node=self._node)
        return Bound(command=bind.command, next_address=await self._keeper.bind(stage, self._dialled(bind.place)))

    async def _move_experts(self, move: MoveExperts) -> ExpertsMoved:
        stage = self._stages.get(move.stage)
        if stage is None:
            raise ProtocolError(f"Node {self._node} has no stage {move.stage} loaded to move experts.", node=self._node)
        await self._keeper.move_experts(stage, move.placement.layer, move.placement.placement)
        return ExpertsMoved(command=move.command)

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
        """Loads a stage under its number; what another plan had loaded under it is ended, once the new one is sure."""

        def report(done_bytes: int, total_bytes: int) -> None:
            self._outbox.put(LoadProgress(command=load.command, done_bytes=done_bytes, total_bytes=total_bytes))

        before = self._stages.get(load.stage)
        stage, adopted = await self._keeper.load(load.spec, report, instead_of=before)
        self._stages[load.stage] = stage
        return Loaded(
            command=load.command,
            stage=load.stage,
            data_port=stage.started.port,
            weights_bytes=stage.started.weights_bytes,
            kv_bytes=stage.started.kv_bytes,
            adopted=adopted,
            placements=stage.placed_experts,
        )

    async def _write(self) -> None:
        while True:
            event = await self._outbox.next()
            try:
                async with asyncio.timeout(WRITE_DEADLINE_S):
                    await self._wire.write(event)
            except TimeoutError:
                message = f"The coordinator took nothing from node {self._node} for {WRITE_DEADLINE_S:.0f} s."
                remedy = "Check that its machine is not frozen."
                raise DeadlineError(message, node=self._node, remedy=remedy) from None

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeats.interval_s)
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
