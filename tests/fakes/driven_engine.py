"""An engine at work over one ring, and what broke that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coordinator.engine import Engine
from coordinator.ring import Ring
from layerline.errors import LayerlineError


@asynccontextmanager
async def driven(engine: Engine, ring: Ring) -> AsyncIterator[asyncio.Queue[LayerlineError]]:
    """Drives `engine` over `ring` for the time of the block; a queue that gets the error which ends that."""
    broken: asyncio.Queue[LayerlineError] = asyncio.Queue()

    async def drive() -> None:
        try:
            await engine.drive(ring)
        except LayerlineError as error:
            broken.put_nowait(error)

    task = asyncio.create_task(drive())
    try:
        yield broken
    finally:
        task.cancel()
        await asyncio.wait([task])
