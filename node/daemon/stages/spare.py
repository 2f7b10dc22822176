"""Workers that are started before anybody asks for them, so that the stage after a lost one need not wait for that.

Starting Python and importing torch take a second or two, in which the coordinator hears of the loss and plans anew. A
spare has 150 MB of its own, so there is none unless a stage was lost, and it goes soon after the hold.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from layerline.errors import LayerlineError
from node.daemon.stages.kept import Worker

Spawn = Callable[[Sequence[str]], Awaitable[Worker]]


class Spare:
    """At most one spare, for the devices that it was prepared for."""

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._devices: tuple[str, ...] = ()
        self._spawning: asyncio.Task[Worker] | None = None

    @property
    def waits(self) -> bool:
        """Whether there is one."""
        return self._spawning is not None

    def prepare(self, devices: Sequence[str]) -> None:
        """Starts a spare for these devices, unless there is one already."""
        if self._spawning is None:
            self._devices = tuple(devices)
            self._spawning = asyncio.create_task(_awaited(self._spawn(devices)))

    async def take(self, devices: Sequence[str]) -> Worker:
        """The spare if it is for these devices and lives, else a new one; no spare is left."""
        if self._devices != tuple(devices) or self._spawning is None:
            await self.drop()
            return await self._spawn(devices)
        spawning, self._spawning = self._spawning, None
        with contextlib.suppress(LayerlineError):
            worker = await spawning
            if worker.lost is None:
                return worker
            await worker.stop()
        return await self._spawn(devices)

    async def drop(self) -> None:
        """Ends the spare, if there is one."""
        spawning, self._spawning = self._spawning, None
        if spawning:
            with contextlib.suppress(LayerlineError):
                await (await spawning).stop()


async def _awaited(spawned: Awaitable[Worker]) -> Worker:
    return await spawned
