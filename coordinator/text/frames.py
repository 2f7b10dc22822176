"""What a text child and its owner send each other: msgpack maps, each behind its length in four bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import msgpack

if TYPE_CHECKING:
    from asyncio import StreamReader  # the owner's; the child starts faster without

MAX_ANSWER_BYTES = 160 << 20  # the texts of the largest vocabulary
LENGTH_BYTES = 4

Message = dict[str, Any]


def packed(message: Message) -> bytes:
    """The frame of a message; UnicodeEncodeError for half a character in it."""
    body: bytes = msgpack.packb(message)
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def read_frame(file: BinaryIO) -> Message | None:
    """The next message from a trusted sender; None at the end."""
    length = file.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    body = file.read(int.from_bytes(length, "little"))
    message: Message = msgpack.unpackb(body)
    return message


async def receive_frame(reader: StreamReader) -> Message:
    """The next message from a child that may send anything: ValueError for what is none, EOFError at the end."""
    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "little")
    if length > MAX_ANSWER_BYTES:
        raise ValueError(f"a message of {length} bytes")
    message = msgpack.unpackb(await reader.readexactly(length))
    if not isinstance(message, dict):
        raise ValueError("a message that is no map")  # like the library's own
    return message
