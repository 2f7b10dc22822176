"""Quantities as people read them."""

from __future__ import annotations

_BINARY = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def format_bytes(size_bytes: int) -> str:
    """`size_bytes` with three digits and a binary unit, as in 1.25 GiB."""
    for unit, unit_bytes in _BINARY:
        amount = size_bytes / unit_bytes
        if amount >= 1:
            return f"{amount:.{max(0, 3 - len(str(int(amount))))}f} {unit}"
    return f"{size_bytes} bytes"


def format_seconds(seconds: float) -> str:
    """`seconds` with three digits, in seconds or milliseconds."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1000:.3g} ms"
