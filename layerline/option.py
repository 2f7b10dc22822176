"""Options, each said once: as a field of a noun, with what it takes and what it is for.

The keywords of the SDK, the flags of the commands with their help, and every check are made from these fields, so that
a value is refused alike wherever it comes from. Knows no option in particular.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Protocol, TypeVar

from layerline.checks import shown

Value = TypeVar("Value")
_KEY = "option"


class Takes(Protocol):
    """What an option takes."""

    def read(self, value: object) -> Any:
        """`value` as the noun holds it; ValueError, which begins with "must be", if it cannot be."""


@dataclass(frozen=True, slots=True)
class Option:
    """What an option takes and is for. `flag` is how commands spell it, None where they do not have it.

    `metavar` stands for its value in their help.
    """

    default: object
    takes: Takes
    help: str
    metavar: str
    flag: str | None


def option(default: Value, takes: Takes, help: str, *, metavar: str = "", flag: str | None = "") -> Value:  # noqa: A002
    """A field of a noun that is an option; without a `flag` commands spell it as the field, with hyphens."""
    return field(default=default, metadata={_KEY: Option(default, takes, help, metavar, flag)})


@functools.cache
def options_of(noun: type) -> Mapping[str, Option]:
    """The options among the fields of a noun, by name."""
    return {each.name: each.metadata[_KEY] for each in dataclasses.fields(noun) if _KEY in each.metadata}


def read_options(noun: Any) -> None:
    """For `__post_init__`: reads every option of a noun; ValueError names the one that cannot be, and what it takes."""
    for name, given in options_of(noun.__class__).items():
        value = getattr(noun, name)
        if value is given.default or (type(value) is type(given.default) and value == given.default):
            continue  # most are left out, and of a frame's every span all are read
        try:
            read = given.takes.read(value)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
        if read is not value:
            object.__setattr__(noun, name, read)


def wrong(takes: str, value: object) -> ValueError:
    """The error for a value that is not what an option takes."""
    return ValueError(f"must be {takes}, not {shown(value)}")


@dataclass(frozen=True, slots=True)
class RealNumber:
    """A number from `least` to `most`, or over `least` where that is `open`."""

    least: float
    most: float
    open: bool = False

    def read(self, value: object) -> float:
        """It as a float."""
        number = _number(value, Real)
        if number is not None and self.least <= number <= self.most and not (self.open and number == self.least):
            return number if type(number) is float else float(number)
        words = f"over {self.least} and at most" if self.open else f"from {self.least} to"
        raise wrong(f"a number {words} {self.most}", value)


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A whole number from `least` to `most`, or None where that `may_be_none`."""

    least: int
    most: int
    may_be_none: bool = False

    def read(self, value: object) -> int | None:
        """It as an int."""
        if value is None and self.may_be_none:
            return None
        number = _number(value, Integral)
        if number is not None and self.least <= number <= self.most:
            return number if type(number) is int else int(number)
        raise wrong(f"a whole number from {self.least} to {self.most}" + " or None" * self.may_be_none, value)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some words; empty is none of them."""

    words: tuple[str, ...]

    def read(self, value: object) -> str:
        """It."""
        if isinstance(value, str) and (not value or value in self.words):
            return value
        raise wrong(f"one of {', '.join(self.words)}, or empty", value)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or False."""

    def read(self, value: object) -> bool:
        """It."""
        if not isinstance(value, bool):
            raise wrong("True or False", value)
        return value


@dataclass(frozen=True, slots=True)
class Text:
    """Any text."""

    def read(self, value: object) -> str:
        """It."""
        if not isinstance(value, str):
            raise wrong("a string", value)
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"must be text, and has a half of a character at {error.start}") from None
        return value


@dataclass(frozen=True, slots=True)
class Texts:
    """Up to `most` texts, none of them empty; one may come without a list."""

    most: int

    def read(self, value: object) -> tuple[str, ...]:
        """They as a tuple."""
        texts = _listed((value,) if isinstance(value, str) else value)
        if texts is None or len(texts) > self.most or not all(isinstance(text, str) and text for text in texts):
            raise wrong(f"a string or up to {self.most} of them, none empty", value)
        for text in texts:
            Text().read(text)
        return texts


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of what `each` takes; `words` name it. None is None where that `may_be_none`."""

    each: Takes
    words: str
    may_be_none: bool = False

    def read(self, value: object) -> tuple[Any, ...] | None:
        """It as a tuple."""
        if value is None and self.may_be_none:
            return None
        items = _listed(value)
        if items is None:
            raise wrong(f"a list of {self.words}", value)
        return tuple(self._read(index, item) for index, item in enumerate(items))

    def _read(self, index: int, item: object) -> Any:
        try:
            return self.each.read(item)
        except ValueError as error:
            raise ValueError(f"must be a list of {self.words}, and the one at {index} {error}") from None


def _number(value: object, kind: type) -> Any:
    """`value` if it is a number of that kind, as those of numpy are too; None if it is none, or a truth value."""
    if type(value) is int or (type(value) is float and kind is Real):
        return value  # spares most calls the slow look below
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _listed(value: object) -> tuple[Any, ...] | None:
    """The items of a list or of anything like one; None if it is none."""
    if isinstance(value, tuple):
        return value
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | bytearray | Mapping):
        return None
    return tuple(value)
