"""Calls whose handler meets a cancellation: of the call itself, which goes on, and of something else, which is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from layerline.errors import InternalError
from layerline.rpc.channels import make_server
from layerline.rpc.status import call_failure, stream_handler, unary_handler
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import node_pb2, node_pb2_grpc

DEADLINE_S = 5.0


class Waiting(node_pb2_grpc.NodeServicer):
    """Waits for what may be cancelled; `ended` has what the handlers ended with."""

    def __init__(self) -> None:
        self.work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun = asyncio.Event()
        self.ended: asyncio.Queue[BaseException] = asyncio.Queue()

    async def wait(self) -> None:
        self.begun.set()
        try:
            await asyncio.shield(self.work)
        except BaseException as end:
            self.ended.put_nowait(end)
            raise

    @unary_handler
    async def Describe(self, request: Any, context: Any) -> node_pb2.NodeFacts:  # noqa: N802
        await self.wait()
        return node_pb2.NodeFacts()

    @unary_handler
    async def Hold(self, requests: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802  # writes to its context
        await self.wait()

    @stream_handler
    async def OpenModel(self, request: Any, context: Any) -> AsyncGenerator[Any, None]:  # noqa: N802
        await self.wait()
        yield node_pb2.OpenModelEvent(card_chunk=b"x")


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Waiting, node_pb2_grpc.NodeAsyncStub]]:
    server, service = make_server(), Waiting()
    node_pb2_grpc.add_NodeServicer_to_server(service, server)
    port = Transport().listen(server, "127.0.0.1:0")
    await server.start()
    try:
        async with asyncio.timeout(DEADLINE_S), Transport().channel(f"127.0.0.1:{port}") as channel:
            yield service, node_pb2_grpc.NodeStub(channel)
    finally:
        await server.stop(None)


def called(stub: node_pb2_grpc.NodeAsyncStub, *, stream: bool) -> Any:
    return stub.OpenModel(node_pb2.OpenModelRequest()) if stream else stub.Describe(node_pb2.DescribeRequest())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancellation_that_is_not_the_calls_is_an_internal_error(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as (service, stub):
        call = called(stub, stream=stream)
        await service.begun.wait()
        service.work.cancel()
        assert type(await call_failure(call, peer="it")) is InternalError
    assert "A handler failed." in caplog.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_its_client_gives_up_is_cancelled_and_no_failure(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as (service, stub):
        call = called(stub, stream=stream)
        await service.begun.wait()
        call.cancel()
        assert isinstance(await service.ended.get(), asyncio.CancelledError)
        assert await call.code() is grpc.StatusCode.CANCELLED
    assert "A handler failed." not in caplog.text
