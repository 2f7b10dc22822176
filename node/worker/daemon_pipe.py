"""The worker's end of its pipe to the daemon.

Standard output is taken for the pipe, and what anything prints goes to standard error instead. Input is read by
a thread, so that the daemon's death ends the worker even in mid-computation.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Self

from node import pipe


class DaemonPipe:
    """Messages from and to the daemon.

    By descriptors and unbuffered, since Python aborts at its end if a thread is still reading through a buffer.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._writing = threading.Lock()

    @classmethod
    def over_standard_streams(cls) -> Self:
        """Takes standard input and output for the pipe."""
        sink = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        return cls(sys.stdin.fileno(), sink)

    def read(self) -> tuple[int, pipe.ToWorker]:
        """The next command after its number; EOFError when the daemon is gone, ValueError for what is no message."""
        length = pipe.length_of(self._read_exactly(pipe.LENGTH_BYTES))
        number, message = pipe.unpack(self._read_exactly(length))
        if not isinstance(message, pipe.ToWorker):
            raise ValueError(f"{type(message).__name__} came from the daemon")
        return number, message

    def write(self, message: pipe.FromWorker, command: int = pipe.NO_COMMAND) -> None:
        """Sends a message, to `command` if that is not NO_COMMAND.

        The daemon reads promptly, and its end of the pipe is as good as its death.
        """
        data = memoryview(pipe.pack(message, command))
        with self._writing:
            while data:
                data = data[os.write(self._sink, data) :]

    def tell_alive(self) -> None:
        """Says so now, and from now on in a thread, until the pipe or the process ends."""
        self.write(pipe.Alive())

        def run() -> None:
            with contextlib.suppress(OSError):
                while True:
                    time.sleep(pipe.ALIVE_INTERVAL_S)
                    self.write(pipe.Alive())

        threading.Thread(target=run, name="alive", daemon=True).start()

    def feed(self, take: Callable[[int, pipe.ToWorker], object]) -> None:
        """Reads in a thread from now on, which gives each number and command to `take`; ends the process with the pipe.

        A command for which `take` raises ValueError ends it too.
        """

        def run() -> None:
            try:
                while True:
                    take(*self.read())
            except (EOFError, OSError):
                os._exit(0)
            except ValueError as error:
                print(f"layerline worker: {error}", file=sys.stderr, flush=True)
                os._exit(1)

        threading.Thread(target=run, name="daemon-pipe", daemon=True).start()

    def _read_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = os.read(self._source, size - len(data))
            if not part:
                raise EOFError
            data += part
        return data
