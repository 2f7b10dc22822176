"""The blocking client. Several threads may use one.

Thin: what is asked, read and raised is in `layerline.calls`, and `layerline.async_client` has the same names.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack, overload

import grpc

from layerline import calls
from layerline.answer import Completion, Finished, Piece
from layerline.embedding import Embedding, EmbedOptions
from layerline.errors import LayerlineError
from layerline.plan_request import PlanOptions
from layerline.readers import Reader
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
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import coordinator_pb2_grpc
from layerline.scoring import ScoreOptions, ScoringFinished, WindowScores
from layerline.stats_report import StatsReport

Reply = TypeVar("Reply")
Item = TypeVar("Item")
End = TypeVar("End")


class Stream(calls.StreamEnd[Item, End]):
    """Items as they are made. `finished` is set at the end; with `n` answers, items of all come as they are made.

    Leaving early, by `break`, `close` or the end of a `with`, cancels the request on every node.
    """

    def __init__(self, call: Any, reader: Reader[Item, End], address: str) -> None:
        self._call = call
        self._reader = reader
        self._address = address
        self._closed = False

    def __iter__(self) -> Stream[Item, End]:
        return self

    def __next__(self) -> Item:
        """The next item; raises the LayerlineError that ended the stream."""
        while True:
            item = self._reader.read(self._next_message())
            if item is not None:
                return item

    def _next_message(self) -> Any:
        try:
            return next(self._call)
        except StopIteration:
            calls.require_finished(self._reader, calls.peer_at(self._address))
            raise
        except grpc.RpcError as failure:
            if self._closed:
                raise StopIteration from None
            raise calls.failure_of(failure, self._address) from failure

    def close(self) -> None:
        """Cancels what is not finished; safe to repeat, and from another thread."""
        self._closed = True
        self._call.cancel()

    def __enter__(self) -> Stream[Item, End]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Client:
    """Speaks with a coordinator: the one at `address` ("host:port"), or the one that mDNS finds.

    Several addresses of one coordinator are tried in order. It connects on first use. Every method raises a
    LayerlineError that says what happened and what to do.
    """

    def __init__(self, address: str | Sequence[str] | None = None) -> None:
        self._addresses = calls.checked_addresses(address)
        self._transport = Transport()
        self._lock = threading.Lock()
        self._connection: calls.Connection[grpc.Channel] | None = None
        self._closed = False

    @overload
    def chat(
        self, messages: Iterable[GivenMessage], *, stream: Literal[True], **options: Unpack[GenerateOptions]
    ) -> Stream[Piece, Finished]: ...
    @overload
    def chat(
        self,
        messages: Iterable[GivenMessage],
        *,
        stream: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> Completion: ...
    def chat(
        self, messages: Iterable[GivenMessage], *, stream: bool = False, **options: Unpack[GenerateOptions]
    ) -> Completion | Stream[Piece, Finished]:
        """The next turn of a chat, whole or as a stream; `messages` are Message or dicts of role and content."""
        return self._answer(chat_request(messages, options), stream)

    @overload
    def generate(
        self,
        prompt: str | None = None,
        *,
        token_ids: Iterable[int] | None = None,
        stream: Literal[True],
        **options: Unpack[GenerateOptions],
    ) -> Stream[Piece, Finished]: ...
    @overload
    def generate(
        self,
        prompt: str | None = None,
        *,
        token_ids: Iterable[int] | None = None,
        stream: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> Completion: ...
    def generate(
        self,
        prompt: str | None = None,
        *,
        token_ids: Iterable[int] | None = None,
        stream: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Completion | Stream[Piece, Finished]:
        """What follows raw text or token ids, whole or as a stream; no chat template is used."""
        return self._answer(generate_request(prompt, token_ids, options), stream)

    def score(
        self, text: str | None = None, *, token_ids: Iterable[int] | None = None, **options: Unpack[ScoreOptions]
    ) -> Stream[WindowScores, ScoringFinished]:
        """The log-probabilities of the tokens of a text or of token ids, each given those before it in its window."""
        return self._stream(calls.score(score_request(text, token_ids, options)))

    def embed(self, texts: str | Iterable[GivenText], **options: Unpack[EmbedOptions]) -> tuple[Embedding, ...]:
        """A vector for each text, or list of token ids; `EmbedRequest` tells which."""
        with self._stream(calls.embed(embed_request(texts, options))) as embeddings:
            return tuple(embeddings)

    def describe(self) -> CoordinatorFacts:
        """Who the coordinator is, and which model it has loaded."""
        return self._ask(calls.describe())

    def nodes(self) -> NodesReport:
        """Every node found, also those that cannot be used, with why."""
        return self._ask(calls.nodes())

    def models(self) -> ModelsReport:
        """Every model that a node has."""
        return self._ask(calls.models())

    def stats(self) -> StatsReport:
        """How the work of the model in service goes, and what holds it up; RequestError while there is none."""
        return self._ask(calls.stats())

    def plan(self, model: str, **options: Unpack[PlanOptions]) -> PlanReport:
        """Who would hold which layers of `model`, and why; loads nothing."""
        return self._ask(calls.plan(plan_request(model, options)))

    def prepare(self, model: str, **options: Unpack[PlanOptions]) -> Stream[PrepareEvent, Ready]:
        """Loads `model` if it is not loaded; the stream tells how far each node is, until Ready."""
        return self._stream(calls.prepare(plan_request(model, options)))

    def connect(self) -> CoordinatorFacts:
        """Finds and greets the coordinator now rather than on first use."""
        return self._connected().facts

    def close(self) -> None:
        """Ends the connection, and with it every stream that is not finished; safe to repeat."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.channel.close()

    def __enter__(self) -> Client:
        self.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def _answer(self, request: GenerateRequest, stream: bool) -> Completion | Stream[Piece, Finished]:
        calls.require_flag("stream", stream)
        answer = self._stream(calls.generate(request))
        if stream:
            return answer
        with answer:
            return calls.completion(list(answer), answer)

    def _ask(self, call: calls.UnaryCall[Reply]) -> Reply:
        connection = self._connected()
        try:
            reply = getattr(connection.stub, call.method)(call.message, timeout=call.timeout_s)
        except grpc.RpcError as failure:
            raise calls.failure_of(failure, connection.address) from failure
        return call.read(reply)

    def _stream(self, call: calls.StreamCall[Item, End]) -> Stream[Item, End]:
        connection = self._connected()
        opened = getattr(connection.stub, call.method)(call.message)
        return Stream(opened, call.reader, connection.address)

    def _connected(self) -> calls.Connection[grpc.Channel]:
        with self._lock:
            calls.require_open(self._closed)
            if self._connection is None:
                addresses = self._addresses or _find_addresses()
                self._connection = _connect(self._transport, addresses)
            return self._connection


def _find_addresses() -> tuple[str, ...]:
    from layerline.coordinator_search import find_coordinator  # noqa: PLC0415 - zeroconf only where it is used

    # On a thread of its own, since the caller's may have an event loop that runs.
    with ThreadPoolExecutor(1, "layerline-search") as thread:
        return thread.submit(asyncio.run, find_coordinator(calls.SEARCH_TIMEOUT_S)).result().addresses


def _connect(transport: Transport, addresses: Sequence[str]) -> calls.Connection[grpc.Channel]:
    """A connection to the first address that a coordinator answers at, tried one after the other until the deadline.

    One that answers otherwise may be another machine's on another network, so that the next one is tried as well.
    """
    deadline_s = time.monotonic() + calls.CONNECT_TIMEOUT_S
    failures: list[LayerlineError] = []
    for address in addresses:
        channel = transport.blocking_channel(address)
        try:
            return _greet(channel, address, max(0.0, deadline_s - time.monotonic()))
        except LayerlineError as failure:
            channel.close()
            failures.append(failure)
        except BaseException:
            channel.close()
            raise
    raise calls.unreachable(failures)


def _greet(channel: grpc.Channel, address: str, timeout_s: float) -> calls.Connection[grpc.Channel]:
    stub: Any = coordinator_pb2_grpc.CoordinatorStub(channel)
    call = calls.describe()
    try:
        reply = stub.Describe(call.message, timeout=timeout_s)
    except grpc.RpcError as failure:
        raise calls.greeting_failure(failure, address) from failure
    return calls.connection(channel, stub, address, reply)
