"""Nouns are made of plain values only if every field is there and of its type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from layerline.plain import noun_of


@dataclass(frozen=True, kw_only=True)
class Inner:
    count: int
    ratio: float = 0.5

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("count is under 0")


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    kind: Literal["red", "blue"]
    parts: tuple[Inner, ...]
    last: Inner | None
    on: bool = False


GOOD: dict[str, Any] = {"name": "a", "kind": "red", "parts": [{"count": 1}, {"count": 2, "ratio": 3}], "last": None}


def test_plain_values_make_nouns_all_the_way_down() -> None:
    made = noun_of(Outer, GOOD)
    assert made == Outer(name="a", kind="red", parts=(Inner(count=1), Inner(count=2, ratio=3.0)), last=None)
    assert type(made.parts[1].ratio) is float


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": 5}, "name is not a text"),
        ({"name": b"a"}, "name is not a text"),
        ({"kind": "green"}, "kind is not one of red, blue"),
        ({"kind": ["red"]}, "kind is not one of"),
        ({"parts": "abc"}, "parts is not a list"),
        ({"parts": [{"count": 6.5}]}, r"parts\[0\].count is not a whole number"),
        ({"parts": [{"count": True}]}, r"parts\[0\].count is not a whole number"),
        ({"parts": [{"count": 1}, {}]}, r"parts\[1\] has no count"),
        ({"parts": [{"count": -1}]}, r"parts\[0\]: count is under 0"),
        ({"last": {"count": 1, "ratio": float("nan")}}, "last.ratio is not a number"),
        ({"last": {"count": 1, "ratio": 10**400}}, "last.ratio is not a number"),
        ({"last": [1]}, "last is not a table"),
        ({"on": 1}, "on is not true or false"),
        ({"colour": 1}, "Outer has 'colour', which is not known"),
        ({7: 1}, "Outer has 7, which is not known"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(changes: dict[Any, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        noun_of(Outer, {**GOOD, **changes})


@pytest.mark.parametrize("value", [None, 5, "text", [], [("name", "a")]])
def test_what_is_no_table_is_no_noun(value: object) -> None:
    with pytest.raises(ValueError, match="Outer is not a table"):
        noun_of(Outer, value)


@dataclass(frozen=True, kw_only=True)
class Other:
    width: int


@dataclass(frozen=True, kw_only=True)
class Either:
    part: Inner | Other


@pytest.mark.parametrize(("plain", "made"), [({"count": 1}, Inner(count=1)), ({"width": 2}, Other(width=2))])
def test_of_several_nouns_a_table_is_the_one_that_has_its_fields(plain: dict[str, Any], made: Inner | Other) -> None:
    assert noun_of(Either, {"part": plain}).part == made


@pytest.mark.parametrize(
    ("plain", "reason"),
    [
        (None, "part is not a table"),
        ({"count": 1, "width": 2}, "part is none of Inner, Other"),
        ({"width": True}, "part.width is not a whole number"),
        ({}, "part has no count"),
    ],
)
def test_what_is_none_of_several_nouns_is_refused(plain: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        noun_of(Either, {"part": plain})
