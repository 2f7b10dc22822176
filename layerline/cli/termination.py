"""SIGTERM ends a command as Ctrl-C does, but with an exit code of its own."""

from __future__ import annotations

import signal
from types import FrameType


class Termination:
    """What SIGTERM does, once it is installed; `came` says whether it has been sent.

    It does not raise where it happens to come: whoever is called by C, such as gRPC or a finaliser, would lose the
    exception, and the command would wait on. What handles Ctrl-C knows how to end, such as by cancelling a task.
    """

    def __init__(self) -> None:
        self.came = False

    def install(self) -> None:
        """From now on."""
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, _: int, frame: FrameType | None) -> None:
        self.came = True
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # a shell has it ignored by what runs in the background
            raise KeyboardInterrupt
        interrupt(signal.SIGINT, frame)
