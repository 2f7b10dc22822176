"""A deadline that moves on while something grows, for waits that may take long but not without any progress."""

from __future__ import annotations

import asyncio


class GrowthDeadline:
    """Has `timeout` end `patience_s` after a number last grew: one that is repeated, or goes up and down, does not."""

    def __init__(self, timeout: asyncio.Timeout, patience_s: float) -> None:
        self._timeout = timeout
        self._patience_s = patience_s
        self._most = -1

    def reached(self, number: int) -> None:
        """The number is this now."""
        if number > self._most:
            self._most = number
            self.move_on()

    def move_on(self) -> None:
        """There was progress that has no number."""
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._patience_s)
