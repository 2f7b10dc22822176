"""Asks a coordinator for one long answer after the other, and prints what interrupts them.

`python -m tests.bench.steady '{"address": …, "request": {…}, "silence_s": …}'` prints a line an event until its end:
the seconds of the system's monotonic clock, which all processes of a machine share, and `begun` once tokens flow, then
`error` and its message, or `token` for the first that comes after an error or after no token for `silence_s`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, Literal

from layerline import AsyncClient
from layerline.errors import LayerlineError

PAUSE_S = 0.05  # after an error, before it asks again
BEGUN_TOKENS = 40


def tell(event: Literal["begun", "error", "token"], message: str = "") -> None:
    """One line on standard output."""
    print(f"{time.monotonic():.4f} {event} {message}".rstrip(), flush=True)


class Watch:
    """What has come so far."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._pieces = 0
        self._last_s = 0.0  # of the last piece; 0 after an error

    def piece(self) -> None:
        """A piece of an answer has come."""
        now_s = time.monotonic()
        self._pieces += 1
        if self._pieces == BEGUN_TOKENS:
            tell("begun")
        elif self._pieces > BEGUN_TOKENS and now_s - self._last_s > self._silence_s:
            tell("token")
        self._last_s = now_s

    def error(self, error: LayerlineError) -> None:
        """An answer has failed."""
        tell("error", error.message)
        self._last_s = 0.0


async def ask_on(address: str, request: dict[str, Any], silence_s: float) -> None:
    """Asks until it is cancelled."""
    watch = Watch(silence_s)
    async with AsyncClient(address) as client:
        while True:
            try:
                async for _piece in client.generate(**request, stream=True):
                    watch.piece()
            except LayerlineError as error:
                watch.error(error)
                await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(ask_on(**json.loads(sys.argv[1])))
