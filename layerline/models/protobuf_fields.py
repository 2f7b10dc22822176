"""The fields of a protocol buffer without its schema: enough to read one kind of file, and strict about bounds.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
MOST_VARINT_BYTES = 10


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field: a whole number of a varint, else the bytes. ValueError if it is no message."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        if kind == LENGTH:
            size_bytes, position = _varint(message, position)
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            size_bytes = 8 if kind == EIGHT_BYTES else 4
        else:
            raise ValueError(f"a field of the kind {kind}")
        if size_bytes > len(message) - position:
            raise ValueError("it ends within a field")
        yield number, message[position : position + size_bytes]
        position += size_bytes


def float_of(value: int | bytes) -> float:
    """The value of a field of four bytes; ValueError if it is none."""
    if not isinstance(value, bytes) or len(value) != 4:
        raise ValueError("a number that is not one of four bytes")
    return float(struct.unpack("<f", value)[0])


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(message[position : position + MOST_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise ValueError("a number without an end")
