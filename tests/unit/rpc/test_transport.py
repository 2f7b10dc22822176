"""Channels and ports of a transport reach each other, in the clear or by its credentials; a Unix socket is plain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from layerline.rpc.channels import make_server
from layerline.rpc.transport import Credentials, Transport

DEADLINE_S = 10.0
METHOD = "/test/Secured"
LOCAL = Transport(
    Credentials(channel=grpc.local_channel_credentials(), server=grpc.local_server_credentials()),
)


class Service(grpc.GenericRpcHandler):
    """Answers every call with how the call came: "insecure", or the kind of its security."""

    def service(self, _details: Any) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def secured(_request: bytes, context: Any) -> bytes:
            kinds: list[bytes] = context.auth_context().get("transport_security_type", [b"insecure"])
            return kinds[0]

        return grpc.unary_unary_rpc_method_handler(secured, bytes, bytes)


@contextlib.asynccontextmanager
async def served(transport: Transport, address: str) -> AsyncIterator[str]:
    """The address at which a server listens."""
    server = make_server()
    server.add_generic_rpc_handlers((Service(),))
    port = transport.listen(server, address)
    await server.start()
    try:
        yield address if address.startswith("unix:") else f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def asked(channel: grpc.aio.Channel) -> bytes:
    ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
    return await ask(b"")


@pytest.mark.parametrize(("transport", "kind"), [(Transport(), b"insecure"), (LOCAL, b"local")])
async def test_channels_reach_the_ports_of_the_same_transport(transport: Transport, kind: bytes) -> None:
    async with served(transport, "127.0.0.1:0") as address, asyncio.timeout(DEADLINE_S):
        async with transport.channel(address) as channel:
            assert await asked(channel) == kind
        with transport.blocking_channel(address) as channel:
            ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
            assert await asyncio.to_thread(ask, b"", timeout=DEADLINE_S) == kind


@pytest.mark.parametrize("server", [Transport(), LOCAL])
async def test_a_unix_socket_is_plain_on_every_transport(server: Transport, tmp_path: Path) -> None:
    async with served(server, f"unix:{tmp_path}/socket") as address, asyncio.timeout(DEADLINE_S):
        for transport in (Transport(), LOCAL):
            async with transport.channel(address) as channel:
                assert await asked(channel) == b"insecure"
