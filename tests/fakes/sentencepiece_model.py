"""tokenizer.model files as SentencePiece writes them, and what it and tiktoken do to text, slowly."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def number_field(number: int, value: int) -> bytes:
    """A field of a protocol buffer that holds a whole number."""
    return _varint(number << 3) + _varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field of a protocol buffer that holds bytes."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def piece_field(text: str, score: float, kind: int) -> bytes:
    """One piece of a vocabulary."""
    content = bytes_field(1, text.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", score) + number_field(3, kind)
    return bytes_field(1, content)


def model_bytes(
    pieces: Sequence[str],
    scores: Sequence[float],
    kinds: Sequence[int],
    *,
    trainer: bytes = number_field(3, 2),
    normalizer: bytes = number_field(4, 0),
) -> bytes:
    """A file with these pieces; unless told otherwise a byte-pair one that leaves spaces as they are."""
    listed = b"".join(map(piece_field, pieces, scores, kinds))
    return listed + bytes_field(2, trainer) + bytes_field(3, normalizer)


def joined(parts: Sequence[str], rank: Callable[[str], float | None]) -> list[str]:
    """`parts` after the pair of the lowest rank, of equal ones the leftmost, was joined until none has a rank."""
    parts = list(parts)
    while True:
        ranks = [
            (found, cut) for cut in range(len(parts) - 1) if (found := rank(parts[cut] + parts[cut + 1])) is not None
        ]
        if not ranks:
            return parts
        _, cut = min(ranks)
        parts[cut : cut + 2] = [parts[cut] + parts[cut + 1]]
