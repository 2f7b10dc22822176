"""A coordinator for the time of a block, in this process, on a socket that only this user can reach."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from coordinator.coordinator import Coordinator
from coordinator.plan_maker import Availability
from coordinator.service import CoordinatorService
from coordinator.service_bounds import ServiceBounds
from coordinator.settings import CoordinatorSettings
from coordinator.temporary_folder import temporary_folder
from layerline.rpc.channels import COORDINATOR_OPTIONS, make_server
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import coordinator_pb2_grpc

STOP_GRACE_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedded:
    """`address` is for `AsyncClient`; `availability(model)` is `Coordinator.availability`."""

    address: str
    availability: Callable[[str], Awaitable[Availability]]


@asynccontextmanager
async def embedded_coordinator(
    settings: CoordinatorSettings, *, bounds: ServiceBounds | None = None
) -> AsyncIterator[Embedded]:
    """The coordinator for the time of the block; whatever it held is released at its end."""
    with temporary_folder() as folder:
        transport = Transport()
        address = f"unix:{folder / 'coordinator.sock'}"
        async with Coordinator(settings, transport, address=address, bounds=bounds) as coordinator:
            server = make_server(options=COORDINATOR_OPTIONS)
            coordinator_pb2_grpc.add_CoordinatorServicer_to_server(CoordinatorService(coordinator), server)
            transport.listen(server, address)
            await server.start()
            try:
                yield Embedded(address=address, availability=coordinator.availability)
            finally:
                await server.stop(STOP_GRACE_S)
