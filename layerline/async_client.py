"""The client for an event loop: the same names as `layerline.client`, with `await` and `async for`.

Thin: what is asked, read and raised is in `layerline.calls`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack, overload

import grpc
import grpc.aio

from layerline import calls
from layerline.answer import Completion, Finished, Piece
from layerline.embedding import Embedding, EmbedOptions
from layerline.endings import task_is_cancelled
from layerline.errors import LayerlineError
from layerline.plan_request import PlanOptions
from layerline.reports import CoordinatorFacts, ModelsReport, NodesReport, PlanReport, PrepareEvent, Ready
from layerline.request_options import (
    GivenMessage,
    GivenText,
    chat_request,
    embed_request,
    generate_request,
    plan_request,
    score_request,
)
from layerline.requests import GenerateOptions, GenerateRequest
from layerline.rpc.channels import CLIENT_OPTIONS
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import coordinator_pb2_grpc
from layerline.scoring import ScoreOptions, ScoringFinished, WindowScores
from layerline.stats_report import StatsReport

Reply = TypeVar("Reply")
Item = TypeVar("Item")
End = TypeVar("End")


class AsyncStream(calls.StreamEnd[Item, End]):
    """Items as they are made. `finished` is set at the end; with `n` answers, items of all come as they are made.

    Leaving early, by `break`, `close`, cancellation or the end of an `async with`, cancels the request on
    every node. The request is made when the first item is asked for.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[calls.Connection[grpc.aio.Channel]]], call: calls.StreamCall[Item, End]
    ) -> None:
        self._closed = False
        self._opened: Any = None
        self._connect = connect
        self._call = call
        self._reader = call.reader
        self._address = ""

    def __aiter__(self) -> AsyncStream[Item, End]:
        return self

    async def __anext__(self) -> Item:
        """The next item; raises the LayerlineError that ended the stream."""
        while True:
            item = self._reader.read(await self._next_message())
            if item is not None:
                return item

    async def _next_message(self) -> Any:
        if self._closed:
            raise StopAsyncIteration
        try:
            if self._opened is None:
                await self._open()
            message = await self._opened.read()
        except grpc.RpcError as failure:
            raise calls.failure_of(failure, self._address) from failure
        except asyncio.CancelledError:
            if task_is_cancelled():
                self.close()
                raise
            if self._closed:  # by `close`, while another task waited here
                raise StopAsyncIteration from None
            raise calls.cancelled() from None  # by `close` of the client
        if message is grpc.aio.EOF:
            calls.require_finished(self._reader, calls.peer_at(self._address))
            raise StopAsyncIteration
        return message

    async def _open(self) -> None:
        connection = await self._connect()
        if self._closed:  # by `close`, while another task waited here
            raise StopAsyncIteration
        self._address = connection.address
        self._opened = getattr(connection.stub, self._call.method)(self._call.message)

    def close(self) -> None:
        """Cancels what is not finished; safe to repeat."""
        self._closed = True
        if self._opened is not None:
            self._opened.cancel()

    async def __aenter__(self) -> AsyncStream[Item, End]:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class AsyncClient:
    """Speaks with a coordinator: the one at `address` ("host:port"), or the one that mDNS finds.

    Several addresses of one coordinator are tried in order. It connects on first use. Every method raises a
    LayerlineError that says what happened and what to do.
    """

    def __init__(self, address: str | Sequence[str] | None = None) -> None:
        self._addresses = calls.checked_addresses(address)
        self._transport = Transport()
        self._lock = asyncio.Lock()
        self._connection: calls.Connection[grpc.aio.Channel] | None = None
        self._closed = False

    @overload
    def chat(
        self, messages: Iterable[GivenMessage], *, stream: Literal[True], **options: Unpack[GenerateOptions]
    ) -> AsyncStream[Piece, Finished]: ...
    @overload
    def chat(
        self,
        messages: Iterable[GivenMessage],
        *,
        stream: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> Coroutine[Any, Any, Completion]: ...
    def chat(
        self, messages: Iterable[GivenMessage], *, stream: bool = False, **options: Unpack[GenerateOptions]
    ) -> Coroutine[Any, Any, Completion] | AsyncStream[Piece, Finished]:
        """The next turn of a chat: `await` it whole, or `async for` over it with `stream=True`."""
        return self._answer(chat_request(messages, options), stream)

    @overload
    def generate(
        self,
        prompt: str | None = None,
        *,
        token_ids: Iterable[int] | None = None,
        stream: Literal[True],
        **options: Unpack[GenerateOptions],
    ) -> AsyncStream[Piece, Finished]: ...
    @overload
    def generate(
        self,
        prompt: str | None = None,
        *,
        token_ids: Iterable[int] | None = None,
        stream: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> Coroutine[Any, Any, Completion]: ...
    def generate(
        self,
        prompt: str | None = None,
        *,
        token_ids: Iterable[int] | None = None,
        stream: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Coroutine[Any, Any, Completion] | AsyncStream[Piece, Finished]:
        """What follows raw text or token ids; no chat template is used."""
        return self._answer(generate_request(prompt, token_ids, options), stream)

    def score(
        self, text: str | None = None, *, token_ids: Iterable[int] | None = None, **options: Unpack[ScoreOptions]
    ) -> AsyncStream[WindowScores, ScoringFinished]:
        """The log-probabilities of the tokens of a text or of token ids, each given those before it in its window."""
        return AsyncStream(self._connected, calls.score(score_request(text, token_ids, options)))

    async def embed(self, texts: str | Iterable[GivenText], **options: Unpack[EmbedOptions]) -> tuple[Embedding, ...]:
        """A vector for each text, or list of token ids; `EmbedRequest` tells which."""
        async with AsyncStream(self._connected, calls.embed(embed_request(texts, options))) as embeddings:
            return tuple([each async for each in embeddings])

    async def describe(self) -> CoordinatorFacts:
        """Who the coordinator is, and which model it has loaded."""
        return await self._ask(calls.describe())

    async def nodes(self) -> NodesReport:
        """Every node found, also those that cannot be used, with why."""
        return await self._ask(calls.nodes())

    async def models(self) -> ModelsReport:
        """Every model that a node has."""
        return await self._ask(calls.models())

    async def stats(self) -> StatsReport:
        """How the work of the model in service goes, and what holds it up; RequestError while there is none."""
        return await self._ask(calls.stats())

    async def plan(self, model: str, **options: Unpack[PlanOptions]) -> PlanReport:
        """Who would hold which layers of `model`, and why; loads nothing."""
        return await self._ask(calls.plan(plan_request(model, options)))

    def prepare(self, model: str, **options: Unpack[PlanOptions]) -> AsyncStream[PrepareEvent, Ready]:
        """Loads `model` if it is not loaded; the stream tells how far each node is, until Ready."""
        return AsyncStream(self._connected, calls.prepare(plan_request(model, options)))

    async def connect(self) -> CoordinatorFacts:
        """Finds and greets the coordinator now rather than on first use."""
        return (await self._connected()).facts

    async def close(self) -> None:
        """Ends the connection, and with it every stream that is not finished; safe to repeat."""
        self._closed = True
        async with self._lock:
            if self._connection is not None:
                await self._connection.channel.close()

    async def __aenter__(self) -> AsyncClient:
        await self.connect()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self.close()

    def _answer(
        self, request: GenerateRequest, stream: bool
    ) -> Coroutine[Any, Any, Completion] | AsyncStream[Piece, Finished]:
        calls.require_flag("stream", stream)
        answer = AsyncStream(self._connected, calls.generate(request))
        return answer if stream else _whole(answer)

    async def _ask(self, call: calls.UnaryCall[Reply]) -> Reply:
        connection = await self._connected()
        try:
            reply = await getattr(connection.stub, call.method)(call.message, timeout=call.timeout_s)
        except grpc.RpcError as failure:
            raise calls.failure_of(failure, connection.address) from failure
        except asyncio.CancelledError:
            if task_is_cancelled():
                raise
            raise calls.cancelled() from None  # by `close`
        return call.read(reply)

    async def _connected(self) -> calls.Connection[grpc.aio.Channel]:
        calls.require_open(self._closed)
        async with self._lock:
            if self._connection is None:
                addresses = self._addresses or await _find_addresses()
                self._connection = await _connect(self._transport, addresses)
            return self._connection


async def _whole(answer: AsyncStream[Piece, Finished]) -> Completion:
    async with answer:
        pieces = [piece async for piece in answer]
    return calls.completion(pieces, answer)


async def _find_addresses() -> tuple[str, ...]:
    from layerline.coordinator_search import find_coordinator  # noqa: PLC0415 - zeroconf only where it is used

    return (await find_coordinator(calls.SEARCH_TIMEOUT_S)).addresses


async def _connect(transport: Transport, addresses: Sequence[str]) -> calls.Connection[grpc.aio.Channel]:
    """A connection to the first address that a coordinator answers at, tried one after the other until the deadline.

    One that answers otherwise may be another machine's on another network, so that the next one is tried as well.
    """
    clock = asyncio.get_running_loop().time
    deadline_s = clock() + calls.CONNECT_TIMEOUT_S
    failures: list[LayerlineError] = []
    for address in addresses:
        channel = transport.channel(address, CLIENT_OPTIONS)
        try:
            return await _greet(channel, address, max(0.0, deadline_s - clock()))
        except LayerlineError as failure:
            await channel.close()
            failures.append(failure)
        except BaseException:
            await channel.close()
            raise
    raise calls.unreachable(failures)


async def _greet(channel: grpc.aio.Channel, address: str, timeout_s: float) -> calls.Connection[grpc.aio.Channel]:
    stub: Any = coordinator_pb2_grpc.CoordinatorStub(channel)
    call = calls.describe()
    try:
        reply = await stub.Describe(call.message, timeout=timeout_s)
    except grpc.RpcError as failure:
        raise calls.greeting_failure(failure, address) from failure
    return calls.connection(channel, stub, address, reply)
