"""The link: a one-way stream between two neighbours on the ring, as a small seam.

The gRPC version is in `layerline.rpc.links`; the one in memory here lets a whole cluster run in one process,
deterministically. Both are bounded, and both hand a neighbour's failure on as a typed error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar

from layerline.errors import LayerlineError, NodeLostError

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)

QUEUED_ITEMS = 64


class Sender(Protocol[T_contra]):
    """The end that items go into."""

    async def send(self, item: T_contra) -> None:
        """Hands over `item`; waits while the link is full; raises the error that broke the link."""

    async def close(self) -> None:
        """Ends the link; safe to repeat."""


class Receiver(Protocol[T_co]):
    """The end that items come out of."""

    async def receive(self) -> T_co:
        """The next item; raises the error that broke the link."""

    async def close(self) -> None:
        """Ends the link; safe to repeat."""


class MemoryLink(Generic[T]):
    """A link inside one process; both ends in one object."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[T] = asyncio.Queue(maxsize=QUEUED_ITEMS)
        self._broken: asyncio.Future[LayerlineError] | None = None

    async def send(self, item: T) -> None:
        """Hands over `item`; waits while the link is full."""
        await self._unless_broken(self._items.put(item))

    async def receive(self) -> T:
        """The next item."""
        return await self._unless_broken(self._items.get())

    async def close(self) -> None:
        """Ends the link for both sides."""
        self.fail(NodeLostError("The link was closed."))

    def fail(self, error: LayerlineError) -> None:
        """Breaks the link: whoever sends or receives, now or later, gets `error`. The first error stays."""
        if not self._future().done():
            self._future().set_result(error)

    def _future(self) -> asyncio.Future[LayerlineError]:
        if self._broken is None:
            self._broken = asyncio.get_running_loop().create_future()
        return self._broken

    async def _unless_broken(self, waiting: Coroutine[Any, Any, R]) -> R:
        broken, task = self._future(), asyncio.ensure_future(waiting)
        try:
            await asyncio.wait((broken, task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
        if broken.done():
            raise broken.result()
        return task.result()
