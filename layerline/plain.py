"""Nouns from plain values, such as msgpack gives them: every field is there and of its type, all the way down.

A noun here is a frozen dataclass whose fields are numbers, texts, literals, tuples and other nouns. What is wrong is a
ValueError that names the place, as in `tensors[3].offset`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, TypeVar

Noun = TypeVar("Noun")
Reader = Callable[[Any, str], Any]

MOST_WHOLE = 1 << 53  # that is the same as a float
_NAMES: dict[type, str] = {int: "a whole number", str: "a text", bool: "true or false"}


def noun_of(noun: type[Noun], value: object) -> Noun:
    """The noun that `value` is the plain form of."""
    kind: Any = noun
    read: Reader = _noun_reader(kind)
    return typing.cast("Noun", read(value, ""))


@functools.cache
def _reader(hint: Any) -> Reader:
    """What makes a value of the type `hint` from its plain form."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _noun_reader(hint)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return _tuple_reader(_reader(arguments[0]))
    if origin in (typing.Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not types.NoneType]
        read = _reader(inner[0]) if len(inner) == 1 else _any_of(tuple(inner))
        return _optional_reader(read) if len(inner) < len(arguments) else read
    if origin is Literal:
        return _literal_reader(arguments)
    if hint is float:
        return _number
    assert hint in _NAMES, f"{hint} has no plain form"
    return _plain_reader(hint)


def _plain_reader(kind: type) -> Reader:
    def read(value: Any, place: str) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{place} is not {_NAMES[kind]}")
        return value

    return read


def _number(value: Any, place: str) -> float:
    if type(value) is int and abs(value) < MOST_WHOLE:
        return float(value)
    if type(value) is not float or not math.isfinite(value):
        raise ValueError(f"{place} is not a number")
    return value


def _literal_reader(allowed: tuple[Any, ...]) -> Reader:
    def read(value: Any, place: str) -> Any:
        if not any(type(value) is type(each) and value == each for each in allowed):
            raise ValueError(f"{place} is not one of {', '.join(map(str, allowed))}")
        return value

    return read


def _optional_reader(inner: Reader) -> Reader:
    return lambda value, place: None if value is None else inner(value, place)


def _any_of(nouns: tuple[type, ...]) -> Reader:
    """Of several nouns the one that has all fields of the table; no other has the same required ones."""
    fields = {noun: {field.name for field in dataclasses.fields(noun)} for noun in nouns}

    def read(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{place} is not a table")
        fitting = (noun for noun, names in fields.items() if value.keys() <= names)
        noun = next(fitting, None)
        if noun is None:
            raise ValueError(f"{place} is none of {', '.join(noun.__name__ for noun in nouns)}")
        return _noun_reader(noun)(value, place)

    return read


def _tuple_reader(inner: Reader) -> Reader:
    def read(value: Any, place: str) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{place} is not a list")
        return tuple(inner(item, f"{place}[{number}]") for number, item in enumerate(value))

    return read


@functools.cache
def _noun_reader(noun: type) -> Reader:
    @functools.cache
    def readers() -> dict[str, tuple[Reader, bool]]:
        hints = typing.get_type_hints(noun)
        return {
            field.name: (_reader(hints[field.name]), field.default is dataclasses.MISSING)
            for field in dataclasses.fields(noun)
        }

    def read(value: Any, place: str) -> Any:
        what = place or noun.__name__
        if not isinstance(value, dict):
            raise ValueError(f"{what} is not a table")
        known = readers()
        if unknown := [key for key in value if key not in known]:
            raise ValueError(f"{what} has {unknown[0]!r:.80}, which is not known")
        if missing := [name for name, (_, required) in known.items() if required and name not in value]:
            raise ValueError(f"{what} has no {missing[0]}")
        inside = f"{place}." if place else ""
        fields = {name: known[name][0](item, inside + name) for name, item in value.items()}
        try:
            return noun(**fields)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None

    return read
