"""The `Node` service of a daemon, thin: messages to nouns and back, and everything else to those who know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote

import grpc.aio

from layerline.checks import require_name
from layerline.errors import ProtocolError
from layerline.facts import NodeFacts
from layerline.hold import HoldCommand, HoldEvent
from layerline.rpc.callers import Callers
from layerline.rpc.convert import from_union, to_message, to_union
from layerline.rpc.status import stream_handler, unary_handler
from layerline.rpc.v1 import node_pb2
from layerline.rpc.whole_writes import write_whole
from node.daemon.hold.admission import HoldAdmission
from node.daemon.stages.model_library import ModelLibrary

CARD_CHUNK_BYTES = 256 << 10
MAX_CALLS_OF_ONE = 64  # machine


class NodeService:
    """The service. `describe` tells the facts; peers of other wire versions may ask for them, too."""

    def __init__(
        self, describe: Callable[[], Awaitable[NodeFacts]], library: ModelLibrary, admission: HoldAdmission
    ) -> None:
        self._describe = describe
        self._library = library
        self._admission = admission
        self._callers = Callers(MAX_CALLS_OF_ONE)

    @unary_handler
    async def Describe(self, _request: node_pb2.DescribeRequest, context: Any) -> node_pb2.NodeFacts:
        """Facts for anyone who asks."""
        with self._callers.one_more(context.peer()):
            return to_message(await self._describe(), node_pb2.NodeFacts)

    @stream_handler
    async def OpenModel(
        self, request: node_pb2.OpenModelRequest, context: Any
    ) -> AsyncGenerator[node_pb2.OpenModelEvent, None]:
        """Progress while the model's files are indexed, then its card in chunks."""
        with self._callers.one_more(context.peer()):
            async with aclosing(self._open_model(request)) as events:
                async for event in events:
                    yield event

    async def _open_model(self, request: node_pb2.OpenModelRequest) -> AsyncGenerator[node_pb2.OpenModelEvent, None]:
        try:
            require_name(request.model, "model name")
        except ValueError as error:
            raise ProtocolError(f"An OpenModel message is not valid: {error}.") from None
        meter = _Meter()
        opening = asyncio.create_task(self._library.open(request.model, meter.tell))
        opening.add_done_callback(lambda _: meter.changed.set())
        try:
            while not opening.done():
                await meter.changed.wait()
                if progress := meter.take():
                    yield node_pb2.OpenModelEvent(progress=progress)
            card = await asyncio.to_thread((await opening).card_path.read_bytes)
        finally:
            opening.cancel()
        for start in range(0, len(card), CARD_CHUNK_BYTES):
            yield node_pb2.OpenModelEvent(card_chunk=card[start : start + CARD_CHUNK_BYTES])

    @unary_handler
    async def Hold(self, _requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """One coordinator's hold; the call's context does the reading and writing."""
        peer = context.peer()
        with self._callers.one_more(peer):
            await self._admission.attend(_ContextWire(context), address_of(peer))


class _Meter:
    """The newest progress, for one reader who may be slower than it comes."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._newest: node_pb2.IndexProgress | None = None

    def tell(self, done_bytes: int, total_bytes: int) -> None:
        self._newest = node_pb2.IndexProgress(done_bytes=done_bytes, total_bytes=total_bytes)
        self.changed.set()

    def take(self) -> node_pb2.IndexProgress | None:
        self.changed.clear()
        newest, self._newest = self._newest, None
        return newest


class _ContextWire:
    """Nouns over the context of a stream-stream call."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._context = context

    async def read(self) -> HoldCommand | None:
        message = await self._context.read()
        if message is grpc.aio.EOF:
            return None
        command: HoldCommand = from_union(HoldCommand, message)
        return command

    async def write(self, event: HoldEvent) -> None:
        await write_whole(self._context, to_union(event, node_pb2.HoldEvent))


def address_of(peer: str) -> str:
    """host:port of a peer as gRPC writes it, as in ipv4:10.0.0.2:4242 or ipv6:%5B::1%5D:4242."""
    kind, _, address = unquote(peer).partition(":")
    return address if kind in ("ipv4", "ipv6") else unquote(peer)
