"""Child processes: started from an argument list, ended with their block, their last words kept.

Each is the leader of its own session, so that Ctrl-C in a terminal reaches its parent alone, which then ends
its children in order. A child whose standard input ends has lost its parent and ends itself: short-lived ones by
`end_with_parent`, which is the child's own part.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from layerline.printable import printable

LAST_LINES = 20
MAX_LINE_BYTES = 2_000
READ_BYTES = 1 << 16
DEATH_DEADLINE_S = 2.0

log = logging.getLogger(__name__)


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs `module` in this Python, without the working directory on its path."""
    return (sys.executable, "-P", "-m", module, *arguments)


def compute_environment(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    """The environment of a child that computes: its number of threads, and devices numbered as NVML does."""
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    return {**environment, **counts, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


async def spawn(
    command: Sequence[str], environment: Mapping[str, str] | None = None, descriptors: Sequence[int] = ()
) -> Process:
    """Starts `command` with pipes on all three standard streams; it has `descriptors` too, under the same numbers."""
    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True, pass_fds=descriptors
    )


@asynccontextmanager
async def child(
    command: Sequence[str], environment: Mapping[str, str] | None = None, descriptors: Sequence[int] = ()
) -> AsyncIterator[tuple[Process, LastWords]]:
    """A short-lived child that is dead when the block is left; started as `spawn` does."""
    process = await spawn(command, environment, descriptors)
    assert process.stderr is not None
    words = LastWords()
    listening = asyncio.create_task(words.listen(process.stderr))
    try:
        yield process, words
    finally:
        kill(process)
        await reaped(process, DEATH_DEADLINE_S)
        listening.cancel()


def kill(process: Process) -> None:
    """Ends the process and whatever it has started, unless it has ended already."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def reaped(process: Process, deadline_s: float) -> bool:
    """Waits until the process has ended; False if it has not by the deadline."""
    try:
        async with asyncio.timeout(deadline_s):
            await process.wait()
    except TimeoutError:
        return False
    return True


class LastWords:
    """The last lines that a child wrote to its standard error; `prefix` also sends them to the log."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._lines: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def last(self) -> str:
        """The last line that says something; empty if there was none."""
        return next((line for line in reversed(self._lines) if line), "")

    async def listen(self, stream: asyncio.StreamReader) -> None:
        """Reads until the stream ends; a line over the bound is cut into several."""
        rest = b""
        while chunk := await stream.read(READ_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._add(line)
            while len(rest) > MAX_LINE_BYTES:
                self._add(rest[:MAX_LINE_BYTES])
                rest = rest[MAX_LINE_BYTES:]
        if rest:
            self._add(rest)

    def _add(self, line: bytes) -> None:
        text = printable(line[:MAX_LINE_BYTES].decode(errors="replace").strip())
        self._lines.append(text)
        if self._prefix and text:
            log.info("%s: %s", self._prefix, text)


def end_with_parent() -> None:
    """Ends this process at once when its standard input ends, which it does when its parent is gone."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()
