"""A coordinator for the time of a block, in this process, on a socket that only this user can reach."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from coordinator.coordinator import Coordinator
from coordinator.model_service import ServiceBounds
from coordinator.service import CoordinatorService
from coordinator.settings import CoordinatorSettings
from layerline.errors import UsageError
from layerline.rpc.channels import COORDINATOR_OPTIONS, make_server
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import coordinator_pb2_grpc

STOP_GRACE_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedded:
    """`address` is for `AsyncClient`; `nodes_are_free(model)` is `Coordinator.nodes_are_free`."""

    address: str
    nodes_are_free: Callable[[str], Awaitable[bool]]


@asynccontextmanager
async def embedded_coordinator(
    settings: CoordinatorSettings, *, bounds: ServiceBounds | None = None
) -> AsyncIterator[Embedded]:
    """The coordinator for the time of the block; whatever it held is released at its end."""
    with _temporary_folder() as folder:
        transport = Transport()
        address = f"unix:{Path(folder) / 'coordinator.sock'}"
        async with Coordinator(settings, transport, address=address, bounds=bounds) as coordinator:
            server = make_server(options=COORDINATOR_OPTIONS)
            coordinator_pb2_grpc.add_CoordinatorServicer_to_server(CoordinatorService(coordinator), server)
            transport.listen(server, address)
            await server.start()
            try:
                yield Embedded(address=address, nodes_are_free=coordinator.nodes_are_free)
            finally:
                await server.stop(STOP_GRACE_S)


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="layerline-")
    except OSError as error:  # Python has tried whether a file can be written in each of them
        remedy = "Free space there, or set TMPDIR to a folder that can be written to."
        raise UsageError(f"There is no folder for temporary files: {error.strerror}.", remedy=remedy) from error
