"""What all streams of OpenAI's first APIs have in common: their end, and how a failure on the way is told."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from coordinator.http.event_stream import event
from coordinator.http.failures import failure_of, openai_body

DONE = b"data: [DONE]\n\n"


async def openai_stream(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The chunks and the word that they are all; or, as the status is sent already, an event that tells what failed."""
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk
        yield DONE
    except Exception as failure:  # noqa: BLE001  # the HTTP boundary
        yield event(openai_body(failure_of(failure)))
