"""GPT-2's alphabet of bytes: the letter for each byte, in which the tokens of byte-pair vocabularies are written."""

from __future__ import annotations

import functools


@functools.cache
def letters() -> tuple[str, ...]:
    """The letter of each byte: printable Latin-1 stands for itself, the other bytes for the letters from 256 on."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return tuple(chr(byte if byte in plain else next(others)) for byte in range(256))


@functools.cache
def bytes_of_letters() -> dict[str, int]:
    """The byte of each letter."""
    return {letter: byte for byte, letter in enumerate(letters())}


def in_letters(data: bytes) -> str:
    """`data` in letters."""
    return "".join(map(letters().__getitem__, data))
