"""Typed access to what a model file says about itself, with errors that name the file and the field.

Serves config.json, the tokenizer's JSON files and GGUF metadata alike. Knows no field by name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Self, TypeVar

from layerline.errors import ModelCorruptError

REMEDY = "Fetch the model anew."
LARGEST_NUMBER = sys.float_info.max

Value = TypeVar("Value")

_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which JSON's escapes can make


class Fields:
    """The fields of one file, called `where` in errors. A missing field without a default is an error."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self._values = values
        self.where = where

    def has(self, key: str) -> bool:
        """Whether `key` is there, be it null."""
        return key in self._values

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def integer(self, key: str, default: int | None = None) -> int:
        """The whole number called `key`."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 63:
            raise self.wrong(key, "a whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """The finite number called `key`."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST_NUMBER:
            raise self.wrong(key, "a number")
        return float(value)

    def between(self, key: str, least: float, most: float, default: float | None = None) -> float:
        """The number called `key`, which is from `least` to `most`."""
        value = self.number(key, default)
        if not least <= value <= most:
            raise self.wrong(key, f"a number from {least:g} to {most:g}")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """The number called `key`, which is more than 0."""
        value = self.number(key, default)
        if value <= 0:
            raise self.wrong(key, "a positive number")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """The string called `key`."""
        value = self._get(key, default)
        if not isinstance(value, str) or _SURROGATE.search(value):
            raise self.wrong(key, "a string of whole characters")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        """The truth value called `key`."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def list_of(self, kind: type[Value], key: str, default: Sequence[Value] | None = None) -> list[Value]:
        """The list called `key`, every item of which is of `kind`."""
        value = self._get(key, default)
        if not isinstance(value, list | tuple) or not all(issubclass(each, kind) for each in set(map(type, value))):
            raise self.wrong(key, f"a list of {kind.__name__} values")
        return list(value)

    def section(self, key: str) -> Self:
        """The object called `key`; without any, an empty one."""
        value = self._get(key, {})
        if not isinstance(value, Mapping):
            raise self.wrong(key, "an object")
        return type(self)(value, f"{self.where}, {key}")

    def with_missing(self, values: Mapping[str, object]) -> Self:
        """The same, and those of `values` that are missing."""
        return type(self)({**values, **self._values}, self.where)

    def replaced(self, values: Mapping[str, object]) -> Self:
        """The same, but for what `values` say."""
        return type(self)({**self._values, **values}, self.where)

    def names(self) -> list[str]:
        """What there is, be it null."""
        return list(self._values)

    def raw(self, key: str) -> object:
        """Whatever is called `key`, or None."""
        return self._values.get(key)

    def wrong(self, key: str, wanted: str) -> ModelCorruptError:
        """The error to raise where `key` is not what it has to be."""
        found = repr(self._values.get(key))[:80]
        return ModelCorruptError(f"{self.where}: {key} must be {wanted}, but is {found}.", remedy=REMEDY)

    def _get(self, key: str, default: object) -> object:
        value = self._values.get(key)
        if value is not None:
            return value
        if default is None:
            raise ModelCorruptError(f"{self.where}: {key} is missing.", remedy=REMEDY)
        return default
