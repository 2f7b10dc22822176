"""Several streams as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

from coordinator.concurrency import ended

Item = TypeVar("Item")


async def merged(streams: Sequence[AsyncGenerator[Item, None]]) -> AsyncGenerator[tuple[int, Item], None]:
    """The items of all streams as they come, each with its stream's number; the first failure ends all.

    Of each stream no more than one item is made before it is taken.
    """
    coming = {asyncio.create_task(_next(stream)): number for number, stream in enumerate(streams)}
    try:
        while coming:
            done, _ = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number = coming.pop(task)
                for item in task.result():
                    coming[asyncio.create_task(_next(streams[number]))] = number
                    yield number, item
    finally:
        await ended(*coming)
        for stream in streams:
            await stream.aclose()


async def _next(stream: AsyncGenerator[Item, None]) -> list[Item]:
    """The next item, or none at the end."""
    async for item in stream:
        return [item]
    return []
