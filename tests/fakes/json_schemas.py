"""Two hundred JSON schemas, of every keyword that structures know; small, so that random answers end."""

from __future__ import annotations

import itertools
from typing import Any

Schema = dict[str, Any]

STRINGS: list[Schema] = [
    {"type": "string", "maxLength": 5},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "string", "minLength": 3, "maxLength": 3},
    {"type": "string", "pattern": "^[a-z]{1,4}$"},
    {"type": "string", "pattern": "^(ab|cd)+x$", "maxLength": 9},
    {"type": "string", "pattern": "^\\d{3}-\\d{4}$"},
    {"type": "string", "enum": ["red", "green", 'quo"te', "späť"]},
    {"type": "string", "const": "fixed"},
    *({"type": "string", "format": name} for name in ("date", "time", "date-time", "uuid", "ipv4", "ipv6")),
]
NUMBERS: list[Schema] = [
    {"type": "integer", "minimum": 0, "maximum": 9},
    {"type": "integer", "minimum": -20, "maximum": 300},
    {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6},
    {"type": "integer", "minimum": 0, "maximum": 99, "multipleOf": 5},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "minimum": -1.5, "maximum": 2.25},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 10},
    {"type": "integer", "enum": [1, 2, 300]},
    {"const": 7},
    {"enum": [1, "one", None, True]},
]
PLAIN: list[Schema] = [
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["boolean", "null"]},
    {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
    {"const": None},
    {"const": {"a": [1, "b"]}},
    {"enum": [[1, 2], {"k": "v"}]},
]
LEAVES = [*STRINGS, *NUMBERS, *PLAIN]


def arrays(items: Schema) -> list[Schema]:
    """Lists of such items."""
    return [
        {"type": "array", "items": items, "maxItems": 2},
        {"type": "array", "items": items, "minItems": 1, "maxItems": 3},
        {"type": "array", "prefixItems": [items, {"type": "boolean"}], "items": False, "minItems": 2},
    ]


def objects(one: Schema, other: Schema) -> list[Schema]:
    """Objects of two such values."""
    both = {"one": one, "other": other}
    return [
        {"type": "object", "properties": both, "required": ["one", "other"], "additionalProperties": False},
        {"type": "object", "properties": both, "required": ["other"], "additionalProperties": False},
        {"type": "object", "properties": both, "additionalProperties": False},
    ]


def combinations(one: Schema, other: Schema) -> list[Schema]:
    """One of several, and references."""
    definitions = {"one": one, "other": other}
    return [
        {"anyOf": [one, other]},
        {"$defs": definitions, "anyOf": [{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/other"}]},
        {
            "definitions": definitions,
            "type": "object",
            "properties": {"x": {"$ref": "#/definitions/one"}},
            "required": ["x"],
            "additionalProperties": False,
        },
        {"allOf": [{"type": "integer", "minimum": 2, "maximum": 90}, {"type": "integer", "maximum": 60}]},
    ]


SPECIAL: list[Schema] = [
    {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "leaf": {"type": "boolean"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1},
                },
                "required": ["leaf"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/tree",
    },
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}, "maxProperties": 2},
    {"type": "object", "patternProperties": {"^a[a-z]$": {"type": "boolean"}}, "additionalProperties": False},
    {
        "type": "object",
        "properties": {"kind": {"const": "a"}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["kind", "n"],
        "additionalProperties": False,
        "title": "A title",
        "description": "Words.",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
    },
]


def schemas() -> list[Schema]:
    """All of them, two hundred or a few more."""
    found = [*LEAVES, *SPECIAL]
    for leaf in LEAVES:
        found += arrays(leaf)[:2]
    pairs = list(itertools.pairwise(LEAVES))
    for one, other in pairs:
        found += objects(one, other)[:2]
    found += [schema for leaf in LEAVES[::3] for schema in arrays(leaf)[2:]]
    found += [schema for one, other in pairs[::4] for schema in combinations(one, other)[:3]]
    found += [combinations(*pairs[0])[3], *(objects(*pair)[2] for pair in pairs[::9])]
    nested = arrays(objects(LEAVES[0], LEAVES[14])[0])[0]
    found += [nested, *objects(nested, arrays(LEAVES[-1])[0])[:2]]
    return found
