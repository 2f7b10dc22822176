"""Objects have the properties that their schema names, where that leaves every answer valid."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from coordinator.text.structure.closed_objects import closed

A: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED_A = {**A, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (A, CLOSED_A),
        ({"type": "array", "items": A}, {"type": "array", "items": CLOSED_A}),
        ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [CLOSED_A, {"type": "null"}]}),
        ({"$ref": "#/$defs/A", "$defs": {"A": A}}, {"$ref": "#/$defs/A", "$defs": {"A": CLOSED_A}}),
    ],
)
def test_objects_are_closed_wherever_they_stand(schema: Any, wanted: Any) -> None:
    assert closed(schema) == wanted


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object"},
        {**A, "additionalProperties": True},
        {**A, "patternProperties": {"^x": {}}},
        {**A, "required": ["a", "b"]},
        {**A, "minProperties": 2},
        {"allOf": [A, {"type": "object", "properties": {"b": {}}, "required": ["b"]}]},
        {"oneOf": [A, {"type": "object", "properties": {"b": {}}}]},
        {"$ref": "#/$defs/A", "properties": {"b": {}}, "$defs": {"A": A}},
        {"anyOf": [A], "properties": {"b": {}}},
        {"enum": [A]},
        {"properties": {}},
    ],
)
def test_what_may_need_others_stays_as_it_is(schema: Any) -> None:
    assert closed(schema) == schema


def test_a_narrower_answer_is_valid_by_the_wider_schema() -> None:
    schema = {"type": "object", "properties": {"one": A}, "required": ["one"]}
    answer = {"one": {"a": 1}}
    jsonschema.validate(answer, closed(schema))
    jsonschema.validate(answer, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"one": {"a": 1, "b": 2}}, closed(schema))
