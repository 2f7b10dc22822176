"""The requests that are being answered, so that the end can wait for them and take no new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Activity:
    """How many requests that change or compute something are under way; `draining` once no further one is taken."""

    def __init__(self) -> None:
        self.draining = False
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def of(self, counts: bool) -> Iterator[None]:
        """The time of one request, if it `counts`."""
        if not counts:
            yield
            return
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._idle.set()

    async def drain(self, deadline_s: float) -> None:
        """Takes no further request, and returns once there is none, or at the deadline."""
        self.draining = True
        try:
            async with asyncio.timeout(deadline_s):
                await self._idle.wait()
        except TimeoutError:
            pass
