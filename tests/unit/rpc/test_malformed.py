"""Bytes that are no message, to any method of any service, are refused in a sentence, and counted in few lines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from layerline.errors import ProtocolError
from layerline.rpc.channels import make_server
from layerline.rpc.status import error_from_rpc, stream_handler, unary_handler
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import coordinator_pb2, coordinator_pb2_grpc, node_pb2, node_pb2_grpc, ring_pb2, ring_pb2_grpc

DEADLINE_S = 20.0
JUNK = b"\xff\xff"
SERVICES = (coordinator_pb2, node_pb2, ring_pb2)


def _methods() -> list[Any]:
    return [
        method
        for module in SERVICES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


async def _unary(_servicer: Any, request: Any, context: Any) -> Any:
    raise AssertionError("nothing that is no message comes to a handler")


async def _stream(_servicer: Any, request: Any, context: Any) -> Any:
    await _unary(_servicer, request, context)
    yield


async def _reading(_servicer: Any, requests: Any, context: Any) -> Any:
    await context.read()


def _handler(method: Any) -> Any:
    if method.client_streaming:
        return unary_handler(_reading)
    return stream_handler(_stream) if method.server_streaming else unary_handler(_unary)


@asynccontextmanager
async def channel_to_all() -> AsyncIterator[grpc.aio.Channel]:
    """To a server that has every service, whose handlers are wrapped as ours are."""
    handlers = {method.name: _handler(method) for method in _methods()}
    servicer = type("Everything", (), handlers)()
    server = make_server()
    for add in (
        coordinator_pb2_grpc.add_CoordinatorServicer_to_server,
        node_pb2_grpc.add_NodeServicer_to_server,
        ring_pb2_grpc.add_RingServicer_to_server,
    ):
        add(servicer, server)
    port = Transport().listen(server, "127.0.0.1:0")
    await server.start()
    try:
        async with Transport().channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(DEADLINE_S):
            yield channel
    finally:
        await server.stop(None)


async def refusal(channel: grpc.aio.Channel, method: Any) -> grpc.aio.AioRpcError:
    """How a method ends that was sent junk."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _answered(channel, path, method)
    return caught.value


async def _answered(channel: grpc.aio.Channel, path: str, method: Any) -> None:
    if method.client_streaming:
        both: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(path)
        call = both()
        await call.write(JUNK)
        await call.read()
    elif method.server_streaming:
        down: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path)
        await down(JUNK).read()
    else:
        once: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
        await once(JUNK)


async def test_junk_to_any_method_is_an_invalid_argument(caplog: pytest.LogCaptureFixture) -> None:
    async with channel_to_all() as channel:
        for method in _methods():
            failure = await refusal(channel, method)
            assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT, method.full_name
            assert isinstance(error_from_rpc(failure, peer="it"), ProtocolError)
    assert all(record.exc_info is None for record in caplog.records)


async def test_much_junk_is_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    describe = node_pb2.DESCRIPTOR.services_by_name["Node"].methods_by_name["Describe"]
    async with channel_to_all() as channel:
        for _ in range(25):
            await refusal(channel, describe)
    assert [record.getMessage() for record in caplog.records] == [
        f"Request number {count} to /layerline.rpc.v1.Node/Describe that is no message was refused."
        for count in (1, 10)
    ]
