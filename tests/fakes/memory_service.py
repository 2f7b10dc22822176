"""The model "tiny" in service over pipelines in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coordinator.model_life import Recovery
from coordinator.model_service import ModelService
from coordinator.service_bounds import ServiceBounds
from layerline.hold import HoldHello
from layerline.plan_request import PlanRequest
from tests.fakes.memory_pipelines import MemoryPipelines

DEADLINE_S = 60.0
BOUNDS = ServiceBounds(recovery=Recovery(pause_s=0.0))


@asynccontextmanager
async def service_of(pipelines: MemoryPipelines) -> AsyncIterator[ModelService]:
    """The service, which serves, for the time of the block."""
    service = ModelService(
        PlanRequest(model="tiny"), pipelines, hello=HoldHello.of("test"), bounds=BOUNDS, open_pipeline=pipelines.open
    )
    service.begin(lambda _: None)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await service.stands()
            yield service
    finally:
        await service.leave()
