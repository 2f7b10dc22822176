"""A coordinator over its bounds: of messages, by what it has to say, or of calls, as each request takes for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from layerline.async_client import AsyncClient
from layerline.reports import CoordinatorFacts
from layerline.rpc.convert import to_message
from layerline.rpc.v1 import coordinator_pb2, coordinator_pb2_grpc
from layerline.version import WIRE_VERSION

FACTS = CoordinatorFacts(name="full", version="0", wire_version=WIRE_VERSION, model="", address="here:1")


class FullCoordinator(coordinator_pb2_grpc.CoordinatorServicer):
    """Says who it is, keeps a stream open for ever, and has large lists."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def Describe(self, request: Any, context: Any) -> coordinator_pb2.CoordinatorFacts:
        return to_message(FACTS, coordinator_pb2.CoordinatorFacts)

    async def Models(self, request: Any, context: Any) -> coordinator_pb2.ModelsReport:
        return coordinator_pb2.ModelsReport(models=[coordinator_pb2.ModelReport(name="m" * 200)] * 50_000)

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.asked.set()
        yield await asyncio.get_running_loop().create_future()

    async def _unasked(self, request: Any, context: Any) -> Any:
        raise AssertionError("no test asks this")

    Nodes = Plan = Stats = _unasked
    Prepare = Score = Embed = Generate


@asynccontextmanager
async def full_coordinator(
    *options: tuple[str, int], rpcs: int | None = None
) -> AsyncIterator[tuple[AsyncClient, FullCoordinator]]:
    server, service = grpc.aio.server(options=options, maximum_concurrent_rpcs=rpcs), FullCoordinator()
    coordinator_pb2_grpc.add_CoordinatorServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            yield client, service
    finally:
        await server.stop(None)
