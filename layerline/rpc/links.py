"""The gRPC links of the ring, as seen by the side that dials: frames out, results in.

Used by the coordinator (to stage 0, from the last stage) and by every stage (to the next one). The other
ends are served by the worker's `Ring` service. A frame link watches its call, so that a neighbour's end is
known at once and not only at the next frame, and with what the neighbour said of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import grpc.aio

from layerline.addresses import split_address
from layerline.endings import NOT_FAILURES
from layerline.errors import (
    DeadlineError,
    LayerlineError,
    NodeLostError,
    NodeUnreachableError,
    ProtocolError,
    typed,
    without_trace,
)
from layerline.frames import Frame, Hello
from layerline.interfaces import scoped_here
from layerline.peer import Peer
from layerline.race import race
from layerline.rpc.channels import MAX_MESSAGE_BYTES
from layerline.rpc.convert_frames import frame_to_message, hello_to_message, result_from_message
from layerline.rpc.status import call_failure, connection_failure, error_from_detail, error_from_rpc, has_detail
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import ring_pb2, ring_pb2_grpc
from layerline.step_result import StepResult

DIAL_DEADLINE_S = 4.0  # for one address to accept a connection, and again for the greeting
DIAL_ALL_DEADLINE_S = 20.0  # for all addresses together; under what a daemon gives its worker to take its place
SEND_DEADLINE_S = 60.0  # how long a neighbour may take no frame
OnBroken = Callable[[LayerlineError], None]
ForwardCall = grpc.aio.StreamStreamCall[ring_pb2.ForwardMessage, ring_pb2.Accepted]
ResultsCall = grpc.aio.UnaryStreamCall[ring_pb2.Hello, ring_pb2.StepResult]
Opened = TypeVar("Opened")


class FrameSender:
    """Frames to one stage. Made by `dial`; `address` is where the stage was reached."""

    def __init__(self, channel: grpc.aio.Channel, call: ForwardCall, *, node: str, address: str) -> None:
        self.node = node
        self.address = address
        self._channel = channel
        self._call = call
        self._watcher: asyncio.Task[LayerlineError] | None = None

    @classmethod
    async def dial(
        cls,
        transport: Transport,
        peer: Peer,
        hello: Hello,
        *,
        on_broken: OnBroken,
        deadline_s: float = DIAL_ALL_DEADLINE_S,
    ) -> FrameSender:
        """A link to the stage of `peer`, on the first of its addresses that accepts the hello.

        `deadline_s` is for the greetings of all addresses together. `on_broken` is called once if the link breaks
        other than by `close`. Raises the stage's own refusal, or NodeUnreachableError with what each address said.
        """

        async def open_link(address: str) -> FrameSender:
            channel = transport.channel(address)
            try:
                call: ForwardCall = ring_pb2_grpc.RingStub(channel).Forward()
                await call.write(ring_pb2.ForwardMessage(hello=hello_to_message(hello)))
                answer = await call.read()
                if not isinstance(answer, ring_pb2.Accepted):
                    raise NodeLostError(f"Node {peer.name} at {address} ended the link.", node=peer.name)
                if answer.HasField("error"):
                    raise error_from_detail(answer.error)
            except BaseException:
                await channel.close()
                raise
            return cls(channel, call, node=peer.name, address=address)

        link = await _first_that_answers(peer, open_link, deadline_s)
        link._watcher = asyncio.create_task(link._watch(on_broken))
        return link

    async def send(self, item: Frame) -> None:
        """Hands a frame to the stage; waits while the stage is behind."""
        watcher = self._watcher
        if watcher is None:
            raise NodeLostError(f"The link to node {self.node} is closed.", node=self.node)
        if watcher.done():
            raise watcher.result()
        message = frame_to_message(item)
        if message.ByteSize() > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"A frame of {message.ByteSize()} bytes is too large to send.", node=self.node)
        try:
            async with asyncio.timeout(SEND_DEADLINE_S):
                await self._call.write(message)
        except TimeoutError:
            text = f"Node {self.node} took no frame for {SEND_DEADLINE_S:.0f} s."
            raise DeadlineError(text, node=self.node, remedy="Check that the machine is not overloaded.") from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise await asyncio.shield(watcher) from None

    async def close(self) -> None:
        """Ends the link; the stage sees it end at once."""
        watcher, self._watcher = self._watcher, None  # which keeps what it has seen, and so this
        if watcher and not watcher.cancel() and not watcher.cancelled():
            without_trace(watcher.result())
        self._call.cancel()
        await self._channel.close()

    async def _watch(self, on_broken: OnBroken) -> LayerlineError:
        error = await self._ending()
        on_broken(error)
        return error

    async def _ending(self) -> LayerlineError:
        """What ends the link, once something does."""
        try:
            return await self._last_word()
        except NOT_FAILURES:
            raise
        except BaseException as failure:  # noqa: BLE001 - the top of a task: whatever it is, who sends is told
            return typed(failure)

    async def _last_word(self) -> LayerlineError:
        try:
            last_word = await self._call.read()
        except grpc.aio.AioRpcError:
            last_word = grpc.aio.EOF
        if isinstance(last_word, ring_pb2.Accepted):
            return error_from_detail(last_word.error)
        return await call_failure(self._call, peer=f"node {self.node} at {self.address}", node=self.node)


class ResultReceiver:
    """Results from the last stage. Made by `dial`."""

    def __init__(self, channel: grpc.aio.Channel, call: ResultsCall, *, node: str, address: str) -> None:
        self.node = node
        self.address = address
        self._channel = channel
        self._call = call

    @classmethod
    async def dial(cls, transport: Transport, peer: Peer, hello: Hello) -> ResultReceiver:
        """A link from the last stage; raises as `FrameSender.dial` does."""

        async def open_link(address: str) -> ResultReceiver:
            channel = transport.channel(address)
            try:
                call: ResultsCall = ring_pb2_grpc.RingStub(channel).Results(hello_to_message(hello))
                if await call.read() is grpc.aio.EOF:  # an empty result says that the hello was accepted
                    raise NodeLostError(f"Node {peer.name} at {address} ended the link.", node=peer.name)
            except BaseException:
                await channel.close()
                raise
            return cls(channel, call, node=peer.name, address=address)

        return await _first_that_answers(peer, open_link, DIAL_ALL_DEADLINE_S)

    async def receive(self) -> StepResult:
        """The next result; no deadline of its own, since an idle ring has none to give."""
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError:
            message = grpc.aio.EOF
        if isinstance(message, ring_pb2.StepResult):
            return result_from_message(message)
        raise await call_failure(self._call, peer=f"node {self.node} at {self.address}", node=self.node)

    async def close(self) -> None:
        """Ends the link."""
        self._call.cancel()
        await self._channel.close()


async def _first_that_answers(
    peer: Peer, open_link: Callable[[str], Awaitable[Opened]], all_deadline_s: float
) -> Opened:
    """The link on the first address that can be connected to and accepts it.

    One that answers otherwise is no reason to give up while there are others: the same address may be another machine's
    on another network, such as that of a bridge which every machine has.
    """
    waiting = tuple(dict.fromkeys(scoped for address in peer.addresses for scoped in scoped_here(address)))
    deadline_s = min(DIAL_DEADLINE_S, all_deadline_s / len(waiting))
    said: list[str] = []
    refusal: LayerlineError | None = None
    try:
        async with asyncio.timeout(all_deadline_s):
            while waiting:
                reached = await race(waiting, _connect)
                said += [f"{address}: {_in_words(failure)}" for address, failure in reached.failures]
                failed = {reached.winner, *(address for address, _ in reached.failures)}
                waiting = tuple(address for address in waiting if address not in failed)
                if not reached.winner:
                    break
                try:
                    async with asyncio.timeout(deadline_s):
                        return await open_link(reached.winner)
                except TimeoutError:
                    said.append(f"{reached.winner}: no answer in {deadline_s:.1f} s")
                except grpc.aio.AioRpcError as failure:
                    error = error_from_rpc(failure, peer=f"node {peer.name} at {reached.winner}", node=peer.name)
                    if has_detail(failure) or not isinstance(error, NodeLostError):
                        refusal = refusal or error  # it answered, and refused
                    said.append(f"{reached.winner}: {connection_failure(failure.details())}")
                except LayerlineError as error:
                    refusal = refusal or error
    except TimeoutError:
        said.append(f"no answer within {all_deadline_s:g} s")
    if refusal:
        raise refusal
    raise NodeUnreachableError(
        f"The data port of node {peer.name} cannot be reached ({'; '.join(said)}).",
        node=peer.name,
        remedy="Check firewalls between the machines: nodes need to reach each other on any port.",
    )


async def _connect(address: str) -> bool:
    """Whether something accepts connections there, which a second one then speaks with; raises why not."""
    host, port = split_address(address)
    async with asyncio.timeout(DIAL_DEADLINE_S):
        _, writer = await asyncio.open_connection(host, port)
    writer.close()
    return True


def _in_words(failure: Exception) -> str:
    if isinstance(failure, TimeoutError):
        return f"no answer in {DIAL_DEADLINE_S:.1f} s"
    return (failure.strerror or str(failure)) if isinstance(failure, OSError) else str(failure)
