"""Errors as statuses, over a real call: class, sentence, node and remedy survive; what gRPC says by itself is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import DecodeError

from layerline import errors
from layerline.errors import ERRORS, LayerlineError, NodeHeldError, OverloadedError
from layerline.rpc.channels import make_server
from layerline.rpc.status import (
    DETAIL_KEY,
    MAX_RETRY_AFTER_S,
    MAX_TEXT_LENGTH,
    call_failure,
    detail_from_error,
    error_from_detail,
    error_from_rpc,
    stream_handler,
    unary_handler,
)
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import common_pb2, node_pb2, node_pb2_grpc

DEADLINE_S = 20.0


class Failing(node_pb2_grpc.NodeServicer):
    """Fails with what it is told to; `left` is set once the generator of a stream was closed."""

    def __init__(self, failure: BaseException) -> None:
        self.failure = failure
        self.left = asyncio.Event()

    @unary_handler
    async def Describe(self, request: Any, context: Any) -> node_pb2.NodeFacts:  # noqa: N802
        raise self.failure

    @unary_handler
    async def Hold(self, requests: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802  # writes to its context
        raise self.failure

    @stream_handler
    async def OpenModel(self, request: Any, context: Any) -> AsyncGenerator[Any, None]:  # noqa: N802
        try:
            while True:
                yield node_pb2.OpenModelEvent(card_chunk=b"x")
                if not request.model:
                    raise self.failure
        finally:
            self.left.set()


@asynccontextmanager
async def stub_of(service: Failing) -> AsyncIterator[node_pb2_grpc.NodeAsyncStub]:
    server = make_server()
    node_pb2_grpc.add_NodeServicer_to_server(service, server)
    port = Transport().listen(server, "127.0.0.1:0")
    await server.start()
    try:
        async with asyncio.timeout(DEADLINE_S), Transport().channel(f"127.0.0.1:{port}") as channel:
            yield node_pb2_grpc.NodeStub(channel)
    finally:
        await server.stop(None)


async def described(failure: BaseException) -> LayerlineError:
    async with stub_of(Failing(failure)) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Describe(node_pb2.DescribeRequest())
    return error_from_rpc(raised.value, peer="node b at 10.0.0.2:1", node="b")


async def test_every_class_survives_the_wire() -> None:
    assert len(ERRORS) > 25
    for code, cls in ERRORS.items():
        told = cls("It broke.", node="kitchen", remedy="Mend it.")
        async with stub_of(Failing(told)) as stub:
            call = stub.OpenModel(node_pb2.OpenModelRequest())
            with pytest.raises(grpc.aio.AioRpcError):
                [_ async for _ in call]
            heard = await call_failure(call, peer="node b", node="b")
        assert type(heard) is cls
        assert (heard.code, heard.message, heard.node, heard.remedy) == (code, "It broke.", "kitchen", "Mend it.")


@pytest.mark.parametrize("letter", ["x", "ü", "模"])
async def test_the_longest_sentences_arrive_whole(letter: str) -> None:
    text = letter * MAX_TEXT_LENGTH
    heard = await described(NodeHeldError(text, node=letter * 256, remedy=text))
    assert type(heard) is NodeHeldError
    assert (heard.message, heard.remedy, heard.node) == (text, text, letter * 256)


async def test_longer_sentences_lose_their_middle_and_halves_of_characters_are_escaped() -> None:
    heard = await described(NodeHeldError("\udcff" + "x" * 2 * MAX_TEXT_LENGTH, remedy="caf\udce9"))
    assert type(heard) is NodeHeldError
    assert len(heard.message) == MAX_TEXT_LENGTH
    assert heard.message.replace("x", "") == r"\udcff…"
    assert heard.remedy == r"caf\udce9"


@pytest.mark.parametrize(("told_s", "heard_s"), [(0, 0), (7, 7), (-3, 0), (1 << 40, MAX_RETRY_AFTER_S)])
async def test_when_to_try_again_arrives_as_a_number(told_s: int, heard_s: int) -> None:
    heard = await described(OverloadedError("The queue is full.", remedy="Try again later.", retry_after_s=told_s))
    assert isinstance(heard, OverloadedError)
    assert heard.retry_after_s == heard_s
    assert str(heard) == "The queue is full. Try again later."


def test_when_to_try_again_is_bounded_whatever_a_peer_says() -> None:
    told = common_pb2.ErrorDetail(code="overloaded", message="Full.", retry_after_s=(1 << 32) - 1)
    heard = error_from_detail(told)
    assert isinstance(heard, OverloadedError)
    assert heard.retry_after_s == MAX_RETRY_AFTER_S
    other = error_from_detail(common_pb2.ErrorDetail(code="node_held", message="Held.", retry_after_s=5))
    assert type(other) is NodeHeldError


async def test_what_no_handler_expected_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    heard = await described(ZeroDivisionError("by nought"))
    assert type(heard) is errors.InternalError
    assert "by nought" in heard.message
    assert "report it" in heard.remedy
    assert "by nought" in caplog.text


class Panic(BaseException):
    """As that of a Rust library is, which is no Exception."""


async def test_the_panic_of_a_library_ends_the_call_too() -> None:
    assert type(await described(Panic("index out of bounds"))) is errors.InternalError
    async with stub_of(Failing(Panic("index out of bounds"))) as stub:
        call = stub.OpenModel(node_pb2.OpenModelRequest())
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            async for _ in call:
                pass
    heard = error_from_rpc(raised.value, peer="it")
    assert type(heard) is errors.InternalError
    assert "index out of bounds" in heard.message


async def test_bytes_that_are_no_message_are_the_peers_fault() -> None:
    assert type(await described(DecodeError("Wire format was corrupt"))) is errors.ProtocolError


async def test_the_generator_of_a_stream_is_closed_with_its_call() -> None:
    service = Failing(ValueError())
    async with stub_of(service) as stub:
        call = stub.OpenModel(node_pb2.OpenModelRequest(model="endless"))
        await call.read()
        call.cancel()
        await service.left.wait()


@pytest.mark.parametrize(
    ("code", "cls", "words"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.NodeLostError, "node b at 10.0.0.2:1 is gone (Connection refused)"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineError, "did not answer in time"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.OverloadedError, "takes no further call now"),
        (grpc.StatusCode.UNIMPLEMENTED, errors.ProtocolError, "UNIMPLEMENTED"),
        (grpc.StatusCode.CANCELLED, errors.ProtocolError, "CANCELLED"),
    ],
)
@pytest.mark.parametrize("metadata", [(), ((DETAIL_KEY, b"\xff\xff"),), (("other", "x"),)])
def test_a_status_without_detail_is_named_by_its_code(
    code: grpc.StatusCode, cls: type[LayerlineError], words: str, metadata: tuple[tuple[str, Any], ...]
) -> None:
    details = "connections to all backends failing: 10.0.0.2:1: Connection refused"
    failure = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details)
    heard = error_from_rpc(failure, peer="node b at 10.0.0.2:1", node="b")
    assert type(heard) is cls
    assert words in heard.message
    assert heard.node == "b"


def test_a_message_over_the_bound_is_told_from_too_many_calls() -> None:
    details = "Stream removed (CLIENT: Received message larger than max (5000000 vs. 1000))"
    failure = grpc.aio.AioRpcError(
        grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.aio.Metadata(), grpc.aio.Metadata(), details
    )
    heard = error_from_rpc(failure, peer="node b", node="b")
    assert type(heard) is errors.ProtocolError
    assert "too large" in heard.message


def test_an_unknown_code_of_a_newer_peer_keeps_its_sentence() -> None:
    heard = error_from_detail(common_pb2.ErrorDetail(code="from_the_future", message="It is new.", node="b"))
    assert type(heard) is LayerlineError
    assert (str(heard), heard.node) == ("It is new.", "b")


def test_a_detail_is_the_error() -> None:
    error = NodeHeldError("Held.", node="b", remedy="Wait.")
    again = error_from_detail(detail_from_error(error))
    assert (type(again), again.message, again.node, again.remedy) == (NodeHeldError, "Held.", "b", "Wait.")
