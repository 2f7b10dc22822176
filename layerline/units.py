"""Quantities as people write and read them."""

from __future__ import annotations

import re
from decimal import Decimal

UNITS = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGTP", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTP", 1)},
}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([A-Za-z]+)")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def parse_bytes(text: str) -> int:
    """The bytes that `text` says, as in 8GiB, 512MiB or 3.5GB; ValueError if it is not such a size."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size like 8GiB, 512MiB or 3.5GB")
    number, unit = match.groups()
    if unit not in UNITS:
        raise ValueError(f"{text!r} has a unit other than {', '.join(UNITS)}")
    size_bytes = int(Decimal(number) * UNITS[unit])
    if size_bytes == 0:
        raise ValueError(f"{text!r} is nothing")
    return size_bytes


def format_bytes(size_bytes: float) -> str:
    """`size_bytes` in binary units with about three digits, as in 512 B, 1.5 GiB or 269 MiB."""
    size, unit = float(size_bytes), 0
    while abs(size) >= 1023.5 and unit < len(_BINARY) - 1:
        size, unit = size / 1024, unit + 1
    digits = 1 if unit and abs(size) < 99.95 else 0
    return f"{size:.{digits}f} {_BINARY[unit]}"


def format_seconds(seconds: float) -> str:
    """`seconds` with three digits, in seconds or milliseconds."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1000:.3g} ms"
