"""Writing into a call so that its status can still follow.

gRPC takes no status while a write is under way, and says so to nobody: the call would never end. A task that is
cancelled in mid-write therefore lets the write end before it goes on.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

END_DEADLINE_S = 1.0  # a write that takes longer is to a peer that reads no more


async def write_whole(
    context: grpc.aio.ServicerContext[Any, Any], message: Any, *, end_deadline_s: float = END_DEADLINE_S
) -> None:
    """Writes `message`; raises what gRPC raises, or CancelledError once the task was cancelled and the write is over.

    A write that was cancelled and does not end within `end_deadline_s` is given up.
    """
    writing = asyncio.ensure_future(context.write(message))
    writing.add_done_callback(_fetch)
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait((writing,), timeout=end_deadline_s)
        writing.cancel()
        raise


def _fetch(writing: asyncio.Future[None]) -> None:
    """Takes note of a failure that nobody waits for any more."""
    if not writing.cancelled():
        writing.exception()
