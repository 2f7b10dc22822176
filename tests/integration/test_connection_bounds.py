"""A server is there for those who call, however many connect and do nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from coordinator.node_client import NodeClient
from coordinator.node_hold import hold
from layerline.errors import NodeUnreachableError
from layerline.hold import HoldHello
from layerline.models.card import ModelCard
from layerline.rpc.channels import ConnectionBounds
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import node_pb2_grpc
from node.daemon.hold.admission import MAX_UNKNOWN_OF_ONE
from tests.fakes.idle_connections import idle_connections
from tests.fakes.node_service import FakeNode
from tests.fakes.peers import peer_at

DEADLINE_S = 20.0
BOUNDS = ConnectionBounds(most=12, idle_ms=800, handshake_ms=800)


@asynccontextmanager
async def bounded_node(card: ModelCard) -> AsyncIterator[FakeNode]:
    node = FakeNode("a", card)
    await node.serve(bounds=BOUNDS)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield node
    finally:
        await node.die()


async def until_described(address: str) -> None:
    """Asks until the node answers."""
    while True:
        try:
            await NodeClient(Transport()).describe(address)
        except NodeUnreachableError:
            continue
        return


@pytest.mark.parametrize(("http2", "mute"), [(40, 0), (0, 40), (20, 20)])
async def test_connections_that_do_nothing_are_ended(card: ModelCard, http2: int, mute: int) -> None:
    async with bounded_node(card) as node:
        port = int(node.address.rpartition(":")[2])
        async with idle_connections(port, http2=http2, mute=mute) as lives:
            await asyncio.wait(lives)
            await until_described(node.address)


async def test_a_hold_is_no_connection_that_does_nothing(card: ModelCard) -> None:
    lost: list[Exception] = []
    async with (
        bounded_node(card) as node,
        hold(Transport(), peer_at(node.address, name="a"), hello=HoldHello.of("desk"), on_lost=lost.append),
    ):
        port = int(node.address.rpartition(":")[2])
        async with idle_connections(port, http2=10, mute=0) as lives:
            await asyncio.wait(lives)
        await until_described(node.address)
        assert lost == []
        assert node.admission.holder is not None


async def test_holds_that_never_say_who_they_are_take_no_place_from_others(card: ModelCard) -> None:
    node = FakeNode("a", card)
    await node.serve()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(node.die)
        channel = await stack.enter_async_context(Transport().channel(node.address))
        silent: list[Any] = [node_pb2_grpc.NodeStub(channel).Hold() for _ in range(200)]
        waiting = {asyncio.create_task(call.code()) for call in silent}
        while len(waiting) > MAX_UNKNOWN_OF_ONE:
            ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert {task.result() for task in ended} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert (await NodeClient(Transport()).describe(node.address)).name == "a"
        for call in silent:
            call.cancel()
        await asyncio.gather(*waiting)
