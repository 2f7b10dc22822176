"""The `Ring` service of a worker: greets neighbours, feeds frames to the stage, and breaks the ring as one.

Whatever ends one stream of a place ends them all: the first error is kept, aborts the call of the stage before
(so it travels back to the coordinator), ends the result stream, and cancels the link to the next stage.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from layerline.errors import (
    DeadlineError,
    LayerlineError,
    ModelMismatchError,
    NodeLostError,
    ProtocolError,
    WireVersionError,
    typed,
)
from layerline.frames import Hello
from layerline.hold import Place
from layerline.rpc.callers import Callers
from layerline.rpc.convert_frames import frame_from_message, hello_from_message, result_to_message
from layerline.rpc.links import FrameSender
from layerline.rpc.status import detail_from_error, unary_handler
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import ring_pb2
from layerline.rpc.whole_writes import END_DEADLINE_S, write_whole
from layerline.step_result import StepResult
from layerline.version import WIRE_VERSION
from node.worker.ring_stage import RingStage
from node.worker.stage_compute import StageCompute

HELLO_DEADLINE_S = 5.0
MAX_UNKNOWN_OF_ONE = 8  # machine, of streams that have not said who they are
RESULT_DEADLINE_S = 60.0  # how long the coordinator may take no result
LEFT = (grpc.aio.InternalError, grpc.aio.UsageError)  # how gRPC says that the other side of a call has left

log = logging.getLogger(__name__)


class ResultStream:
    """Results into the call that the coordinator has open on the last stage.

    It may take none for `deadline_s`; a write that is given up is waited for as `write_whole` says.
    """

    def __init__(self, *, deadline_s: float = RESULT_DEADLINE_S, end_deadline_s: float = END_DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._end_deadline_s = end_deadline_s
        self._context: grpc.aio.ServicerContext[Any, Any] | None = None
        self._writing = asyncio.Lock()

    async def open(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Takes the call, and tells the coordinator so."""
        self._context = context
        await self._write(ring_pb2.StepResult())

    async def send(self, item: StepResult) -> None:
        """Hands a result to the coordinator; waits while it is behind."""
        await self._write(result_to_message(item))

    async def close(self) -> None:
        """Forgets the call, once what is being written has ended."""
        async with self._writing:
            self._context = None

    async def _write(self, message: ring_pb2.StepResult) -> None:
        async with self._writing:
            if self._context is None:
                raise ProtocolError("A frame came before the coordinator had asked for results.")
            try:
                async with asyncio.timeout(self._deadline_s):
                    await write_whole(self._context, message, end_deadline_s=self._end_deadline_s)
            except LEFT:
                raise NodeLostError("The coordinator has left.") from None
            except TimeoutError:
                raise DeadlineError(f"The coordinator took no result for {self._deadline_s:.0f} s.") from None


class Seat:
    """One place taken: the streams that belong to it, and the error that ended it."""

    def __init__(self, place: Place, stage: RingStage, frames: FrameSender | None, results: ResultStream) -> None:
        self.place = place
        self.stage = stage
        self.results = results
        self._frames = frames
        self._streams: set[asyncio.Task[Any]] = set()
        self._greeted: set[str] = set()
        self.error: LayerlineError | None = None

    def join(self, kind: str, task: asyncio.Task[Any]) -> None:
        """Counts a stream in, once of each kind."""
        if kind in self._greeted:
            raise ProtocolError(f"This stage has its {kind} stream already.")
        self._greeted.add(kind)
        self._streams.add(task)

    async def leave(self, task: asyncio.Task[Any]) -> None:
        """A stream has ended, and with it the seat."""
        self._streams.discard(task)
        await self.close(NodeLostError("A neighbour on the ring ended its stream."))

    def end(self, error: LayerlineError) -> None:
        """Ends every stream with `error`, but the one that calls this, which raises it; the first error stays."""
        if self.error is None:
            self.error = error
            for task in self._streams - {asyncio.current_task()}:
                task.cancel()

    async def close(self, error: LayerlineError) -> None:
        """Ends the seat with `error` and lets the next stage know."""
        self.end(error)
        if self._frames:
            await self._frames.close()


class RingService:
    """The service, and the one seat it has at a time. Its handlers read and write through the call's context."""

    def __init__(self, compute: StageCompute, transport: Transport, *, node: str, model_digest: str) -> None:
        self._compute = compute
        self._transport = transport
        self._node = node
        self._model_digest = model_digest
        self._seat: Seat | None = None
        self._unknown = Callers(MAX_UNKNOWN_OF_ONE)

    async def take_place(self, place: Place) -> str:
        """Takes a place, dialling the next stage if there is one; its address, or "" for the last stage."""
        await self.vacate()
        frames = await self._dial(place) if place.next else None
        results = ResultStream()
        stage = RingStage(
            self._compute,
            node=self._node,
            epoch=place.epoch,
            stage_index=place.stage_index,
            frames=frames,
            results=None if frames else results,
        )
        self._seat = Seat(place, stage, frames, results)
        return frames.address if frames else ""

    async def vacate(self) -> None:
        """Gives the place up."""
        seat, self._seat = self._seat, None
        if seat:
            await seat.close(NodeLostError("The stage was given another place."))

    async def _dial(self, place: Place) -> FrameSender:
        assert place.next is not None
        hello = Hello(
            wire_version=WIRE_VERSION,
            epoch=place.epoch,
            plan_key=place.plan_key,
            model_digest=self._model_digest,
            stage_index=place.stage_index + 1,
            sender=self._node,
        )
        return await FrameSender.dial(
            self._transport,
            place.next,
            hello,
            on_broken=lambda error: self._next_lost(place, error),
        )

    def _next_lost(self, place: Place, error: LayerlineError) -> None:
        if self._seat and self._seat.place is place:
            self._seat.end(error)

    @unary_handler
    async def Forward(self, _requests: Any, context: Any) -> None:
        """Frames from the stage before, or from the coordinator."""
        try:
            with self._unknown.one_more(context.peer()):
                async with asyncio.timeout(HELLO_DEADLINE_S):
                    message = await self._read(context)
        except TimeoutError:
            raise ProtocolError("No hello came in time.", node=self._node) from None
        if not isinstance(message, ring_pb2.ForwardMessage) or not message.HasField("hello"):
            raise ProtocolError("The first message was not a hello.", node=self._node)
        seat = self._greet(hello_from_message(message.hello))
        try:
            await self._attend(seat, "frame", self._take_frames(seat, context))
        except LayerlineError as error:
            with contextlib.suppress(*LEFT):
                await write_whole(context, ring_pb2.Accepted(error=detail_from_error(error)))
            raise

    async def _take_frames(self, seat: Seat, context: Any) -> None:
        await write_whole(context, ring_pb2.Accepted())
        while (message := await self._read(context)) is not grpc.aio.EOF:
            if not message.HasField("frame"):
                raise ProtocolError("A second hello came.", node=self._node)
            await seat.stage.accept(frame_from_message(message.frame))

    async def _read(self, context: Any) -> Any:
        try:
            return await context.read()
        except DecodeError as failure:
            raise ProtocolError(f"Bytes came that are no message ({failure}).", node=self._node) from None

    @unary_handler
    async def Results(self, request: ring_pb2.Hello, context: Any) -> None:
        """Results to the coordinator, from the last stage."""
        seat = self._greet(hello_from_message(request))
        if seat.place.next is not None:
            raise ProtocolError("Only the last stage has results.", node=self._node)
        await self._attend(seat, "result", self._give_results(seat, context))

    async def _give_results(self, seat: Seat, context: Any) -> None:
        try:
            await seat.results.open(context)
            await asyncio.get_running_loop().create_future()  # until the seat ends or the coordinator leaves
        finally:
            await seat.results.close()

    async def _attend(self, seat: Seat, kind: str, stream: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            seat.join(kind, task)
        except ProtocolError:
            stream.close()
            raise
        try:
            await stream
        except asyncio.CancelledError:
            if seat.error is None:
                raise  # the peer left
            task.uncancel()
            raise seat.error from None
        except (grpc.aio.BaseError, GeneratorExit, KeyboardInterrupt, SystemExit):
            raise  # the peer left, or this process ends
        except BaseException as failure:  # the top of a stream, whose neighbours are told
            error = typed(failure)
            if error is not failure:
                log.exception("A stream of the ring failed.")
            seat.end(error)
            raise error from None
        finally:
            await seat.leave(task)

    def _greet(self, hello: Hello) -> Seat:
        if hello.wire_version != WIRE_VERSION:
            raise WireVersionError(
                f"{hello.sender} speaks wire version {hello.wire_version}, node {self._node} speaks {WIRE_VERSION}.",
                node=self._node,
                remedy="Install the same version of layerline on both machines.",
            )
        if hello.model_digest != self._model_digest:
            raise ModelMismatchError(
                f"{hello.sender} has model {hello.model_digest}, node {self._node} has {self._model_digest}.",
                node=self._node,
                remedy="Copy the same model file to both machines.",
            )
        seat = self._seat
        if seat is None:
            raise ProtocolError("This stage has no place in a plan now.", node=self._node)
        if hello.epoch != seat.place.epoch or not hmac.compare_digest(hello.plan_key, seat.place.plan_key):
            raise ProtocolError(f"Plan {hello.epoch} is not the one of this stage.", node=self._node)
        if hello.stage_index != seat.place.stage_index:
            raise ProtocolError(
                f"Stage {hello.stage_index} was greeted, this is {seat.place.stage_index}.", node=self._node
            )
        if seat.error is not None:
            raise seat.error
        return seat
