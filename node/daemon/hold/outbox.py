"""Events on their way to the coordinator, in order and bounded; those that newer ones replace give way to them."""

from __future__ import annotations

import asyncio
from collections import deque

from layerline.errors import OverloadedError
from layerline.hold import ExpertRows, Heartbeat, HoldEvent, LoadProgress

MAX_EVENTS = 64


class Outbox:
    """A queue of what `node` says, for one reader."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._events: deque[HoldEvent] = deque()
        self._filled = asyncio.Event()
        self._overflowed = False

    def put(self, event: HoldEvent) -> None:
        """Adds an event. One over the bound is lost, and `next` then ends the hold."""
        if isinstance(event, LoadProgress | Heartbeat | ExpertRows):
            self._events = deque(other for other in self._events if not _replaces(event, other))
        if len(self._events) < MAX_EVENTS:
            self._events.append(event)
        else:
            self._overflowed = True
        self._filled.set()

    async def next(self) -> HoldEvent:
        """The oldest event, as soon as there is one; OverloadedError if the coordinator has left too many unread."""
        await self._filled.wait()
        if self._overflowed:
            message = f"The coordinator left {MAX_EVENTS} events of node {self._node} unread."
            raise OverloadedError(message, node=self._node, remedy="Check that its machine is not frozen.")
        event = self._events.popleft()
        if not self._events:
            self._filled.clear()
        return event


def _replaces(event: HoldEvent, other: HoldEvent) -> bool:
    """Whether the first says all that matters of the second."""
    if isinstance(event, ExpertRows) and isinstance(other, ExpertRows):
        return event.stage == other.stage
    return type(event) is type(other)
