"""Connections that speak HTTP/2 as far as a server can ask, answer its pings, and never call anything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes.fromhex("000000040000000000")
SETTINGS_ACK = bytes.fromhex("000000040100000000")
PING_ACK = bytes.fromhex("000008060100000000")
SETTINGS_TYPE, PING_TYPE = 4, 6


@contextlib.asynccontextmanager
async def idle_connections(port: int, *, http2: int, mute: int) -> AsyncIterator[list[asyncio.Task[None]]]:
    """So many of them, and so many that never say a word; each task ends when the server has ended its connection."""
    lives = [asyncio.create_task(_live(port, speaks=number < http2)) for number in range(http2 + mute)]
    try:
        yield lives
    finally:
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)


async def _live(port: int, *, speaks: bool) -> None:
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            if speaks:
                writer.write(PREFACE + SETTINGS)
            with contextlib.suppress(asyncio.IncompleteReadError):
                await _answer_frames(reader, writer)
        finally:
            writer.close()


async def _answer_frames(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        head = await reader.readexactly(9)
        body = await reader.readexactly(int.from_bytes(head[:3]))
        kind, is_ack = head[3], head[4] & 1
        if kind == SETTINGS_TYPE and not is_ack:
            writer.write(SETTINGS_ACK)
        elif kind == PING_TYPE and not is_ack:
            writer.write(PING_ACK + body)
