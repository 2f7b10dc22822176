"""The coordinator's hold on one node: commands out, answers and news in, on one stream.

The hold lasts as long as the stream. News that no command asked for (a worker lost, the node draining, the
stream broken, no sign of life) goes to `on_lost`, once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
import grpc.aio

from coordinator.concurrency import ended
from coordinator.hold_deadlines import HOLD_DEADLINES, HoldDeadlines
from layerline.endings import NOT_FAILURES
from layerline.errors import (
    DeadlineError,
    LayerlineError,
    NodeDrainingError,
    NodeLostError,
    ProtocolError,
    blamed_on,
    typed,
    without_trace,
)
from layerline.growth import GrowthDeadline
from layerline.hold import (
    Bind,
    Bound,
    Draining,
    ExpertRows,
    ExpertsMoved,
    Failed,
    Heartbeat,
    HoldCommand,
    HoldEvent,
    HoldHello,
    LayerPlacement,
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
from layerline.peer import Peer
from layerline.plan import StageSpec
from layerline.rpc.convert import from_union, to_union
from layerline.rpc.status import call_failure
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import node_pb2, node_pb2_grpc

OnLost = Callable[[LayerlineError], None]
OnProgress = Callable[[int, int], None]
OnExpertRows = Callable[[ExpertRows], None]
HoldCall = grpc.aio.StreamStreamCall[node_pb2.HoldCommand, node_pb2.HoldEvent]
Answer = TypeVar("Answer", Loaded, Bound, ExpertsMoved, Unloaded)


class NodeHold:
    """One hold. Made by `hold`."""

    def __init__(
        self,
        call: HoldCall,
        node: Peer,
        *,
        welcome: Welcome,
        on_lost: OnLost,
        deadlines: HoldDeadlines = HOLD_DEADLINES,
    ) -> None:
        self.node = node.name
        self._peer = node
        self.welcome = welcome
        self._call = call
        self._on_lost = on_lost
        self._deadlines = deadlines
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._progress: dict[int, OnProgress] = {}
        self._lost: LayerlineError | None = None
        self.on_expert_rows: OnExpertRows | None = None

    async def load(self, stage: int, spec: StageSpec, on_progress: OnProgress) -> Loaded:
        """Has the node hold this stage, under this number; raises what the node says against it."""
        number = next(self._numbers)
        silence_s = self._deadlines.load_silence_s
        deadline = asyncio.timeout(silence_s)
        growth = GrowthDeadline(deadline, silence_s)

        def progressed(done_bytes: int, total_bytes: int) -> None:
            growth.reached(done_bytes)
            on_progress(done_bytes, total_bytes)

        self._progress[number] = progressed
        try:
            async with deadline:
                return await self._ask(Load(command=number, stage=stage, spec=spec), Loaded)
        except TimeoutError:
            raise self._late("load its layers", silence_s) from None
        finally:
            del self._progress[number]

    async def bind(self, stage: int, place: Place) -> str:
        """Gives a loaded stage its place; the address at which it reached the next one."""
        command = Bind(command=next(self._numbers), stage=stage, place=place)
        try:
            async with asyncio.timeout(self._deadlines.bind_s):
                return (await self._ask(command, Bound)).next_address
        except TimeoutError:
            raise self._late("take its place in the plan", self._deadlines.bind_s) from None

    async def move_experts(self, stage: int, placement: LayerPlacement) -> None:
        """Has a stage place the experts of a layer so, between two steps; raises why they stay where they are."""
        command = MoveExperts(command=next(self._numbers), stage=stage, placement=placement)
        try:
            async with asyncio.timeout(self._deadlines.move_s):
                await self._ask(command, ExpertsMoved)
        except TimeoutError:
            raise self._late("move experts", self._deadlines.move_s) from None

    async def unload(self, stage: int) -> None:
        """Has the node free a stage."""
        try:
            async with asyncio.timeout(self._deadlines.unload_s):
                await self._ask(Unload(command=next(self._numbers), stage=stage), Unloaded)
        except TimeoutError:
            raise self._late("unload its layers", self._deadlines.unload_s) from None

    async def _ask(self, command: Load | Bind | MoveExperts | Unload, expected: type[Answer]) -> Answer:
        if self._lost:
            raise self._lost
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[command.command] = future
        try:
            await self._send(command)
            with blamed_on(self.node):
                answer = await future
        finally:
            del self._answers[command.command]
        if not isinstance(answer, expected):
            raise ProtocolError(f"Node {self.node} answered with {type(answer).__name__}.", node=self.node)
        return answer

    async def _send(self, command: HoldCommand) -> None:
        try:
            await self._call.write(to_union(command, node_pb2.HoldCommand))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise await self._failure() from None

    def close(self) -> None:
        """Lets go of what the error that ended it had seen."""
        if self._lost:
            without_trace(self._lost)

    async def attend(self) -> None:
        """Reads events and keeps the hold alive until it breaks; then everybody who waits is told why."""
        heart = asyncio.create_task(self._beat())
        try:
            while True:
                with blamed_on(self.node):
                    self._take(await self._next_event())
        except NOT_FAILURES:
            raise
        except BaseException as failure:  # noqa: BLE001 - the top of a task: whatever it is, who waits is told
            self._lose(typed(failure))
        finally:
            await ended(heart)

    async def _next_event(self) -> HoldEvent:
        silence_s = self._deadlines.heartbeats.silence_s
        try:
            async with asyncio.timeout(silence_s):
                message = await self._call.read()
        except TimeoutError:
            message = f"Node {self._peer} has given no sign of life for {silence_s:.0f} s."
            raise NodeLostError(message, node=self.node, remedy="Check that the machine is not frozen.") from None
        except grpc.aio.AioRpcError:
            raise await self._failure() from None
        if not isinstance(message, node_pb2.HoldEvent):
            raise await self._failure()
        event: HoldEvent = from_union(HoldEvent, message)
        return event

    def _take(self, event: HoldEvent) -> None:
        if isinstance(event, LoadProgress):
            report = self._progress.get(event.command)
            if report:
                report(event.done_bytes, event.total_bytes)
        elif isinstance(event, (Loaded, Bound, ExpertsMoved, Unloaded, Failed)):
            self._answer(event)
        elif isinstance(event, ExpertRows):
            if self.on_expert_rows:
                self.on_expert_rows(event)
        elif isinstance(event, WorkerLost):
            self._lose(event.error)
        elif isinstance(event, Draining):
            message = f"Node {self._peer} is shutting down."
            self._lose(NodeDrainingError(message, node=self.node, remedy="Start it again, or go on without it."))
        elif isinstance(event, Welcome):
            raise ProtocolError(f"Node {self.node} welcomed twice.", node=self.node)

    def _answer(self, event: Loaded | Bound | ExpertsMoved | Unloaded | Failed) -> None:
        future = self._answers.get(event.command)
        if future is None or future.done():
            return  # whoever asked has stopped waiting
        if isinstance(event, Failed):
            future.set_exception(event.error)
        else:
            future.set_result(event)

    def _lose(self, error: LayerlineError) -> None:
        if self._lost:
            return
        self._lost = error
        for future in self._answers.values():
            if not future.done():
                future.set_exception(error)
        self._on_lost(error)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._deadlines.heartbeats.interval_s)
            try:
                await self._send(Heartbeat())
            except LayerlineError:
                return  # the reading side has it too, and tells

    async def _failure(self) -> LayerlineError:
        return await call_failure(self._call, peer=f"node {self._peer}", node=self.node)

    def _late(self, doing: str, deadline_s: float) -> DeadlineError:
        return DeadlineError(
            f"Node {self._peer} did not {doing} within {deadline_s:.0f} s.",
            node=self.node,
            remedy="Look at its log.",
        )


@asynccontextmanager
async def hold(
    transport: Transport,
    node: Peer,
    *,
    hello: HoldHello,
    on_lost: OnLost,
    deadlines: HoldDeadlines = HOLD_DEADLINES,
) -> AsyncIterator[NodeHold]:
    """Holds `node`, dialled at its first address, for the time of the block; NodeHeldError if another holds it."""
    async with transport.channel(node.address) as channel:
        call: HoldCall = node_pb2_grpc.NodeStub(channel).Hold()
        try:
            welcome = await _greet(call, node, hello, deadlines.welcome_s)
            held = NodeHold(call, node, welcome=welcome, on_lost=on_lost, deadlines=deadlines)
            attending = asyncio.create_task(held.attend())
            try:
                yield held
            finally:
                await ended(attending)
                held.close()
        finally:
            call.cancel()


async def _greet(call: HoldCall, node: Peer, hello: HoldHello, deadline_s: float) -> Welcome:
    try:
        async with asyncio.timeout(deadline_s):
            await call.write(to_union(hello, node_pb2.HoldCommand))
            message = await call.read()
    except TimeoutError:
        raise NodeLostError(f"Node {node} did not answer.", node=node.name, remedy="Look at its log.") from None
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        message = grpc.aio.EOF
    if not isinstance(message, node_pb2.HoldEvent):
        raise await call_failure(call, peer=f"node {node}", node=node.name)
    with blamed_on(node.name):
        event = from_union(HoldEvent, message)
    if not isinstance(event, Welcome):
        raise ProtocolError(f"Node {node} did not welcome.", node=node.name)
    return event
