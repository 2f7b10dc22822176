"""Checks that nouns make on themselves, so that nothing from a message is used before it is checked."""

from __future__ import annotations

from collections.abc import Collection

MAX_NAME_LENGTH = 256
MAX_TEXT_LENGTH = 4_096  # as long as a path may be
MAX_SHOWN_LENGTH = 80


def require(condition: bool, message: str) -> None:
    """Raises ValueError with `message` unless `condition` holds."""
    if not condition:
        raise ValueError(message)


def require_text(value: str, what: str) -> None:
    """Raises ValueError unless `value` is a text of at most `MAX_TEXT_LENGTH` letters."""
    require(len(value) <= MAX_TEXT_LENGTH, f"{what} is longer than {MAX_TEXT_LENGTH} letters")


def require_name(value: str, what: str) -> None:
    """Raises ValueError unless `value` is a short printable non-empty string."""
    is_short = isinstance(value, str) and 0 < len(value) <= MAX_NAME_LENGTH
    require(is_short and value.isprintable(), f"{what} is not a short printable name")


def require_one_of(value: str, allowed: Collection[str], what: str) -> None:
    """Raises ValueError unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{what} is {value!r}, must be one of {', '.join(allowed)}")


def shown(value: object) -> str:
    """A value as sentences show it: on one line, and short whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # a number that is too long for Python to write
        return f"a {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN_LENGTH else f"{text[:MAX_SHOWN_LENGTH]}…"
