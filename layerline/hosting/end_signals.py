"""How a program is told to end, and that it does, whatever hangs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger(__name__)


@contextmanager
def told_by_signals() -> Iterator[asyncio.Event]:
    """An event that the first SIGTERM or SIGINT sets; the second one ends the process at once.

    The children of a process that is ended at once end by themselves, as their standard input does.
    """
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def tell(number: signal.Signals) -> None:
        for each in SIGNALS:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        told.set()
        log.info("%s: ending. Once more ends at once.", number.name)

    for number in SIGNALS:
        loop.add_signal_handler(number, tell, number)
    try:
        yield told
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


class LastResort:
    """Ends the process a while after `begin`, unless it was called off: for a thread or a driver that hangs."""

    def __init__(self, deadline_s: float) -> None:
        self._timer = threading.Timer(deadline_s, self._end)
        self._timer.daemon = True

    def begin(self) -> None:
        """Starts the time running."""
        self._timer.start()

    def call_off(self) -> None:
        """All has ended in time."""
        self._timer.cancel()

    def _end(self) -> None:
        log.error("Something hangs; ending at once.")
        os._exit(1)
