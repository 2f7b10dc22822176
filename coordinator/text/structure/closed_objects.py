"""JSON schemas whose objects have the properties that they name and no others.

A schema allows further ones unless it says otherwise, and a small model makes them up without end. What the narrower
schema allows the wider one allows too, so an answer stays valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MEETING = frozenset({"allOf", "oneOf", "not", "if", "dependentSchemas", "unevaluatedProperties", "$dynamicRef"})
"""Keywords by which a value must obey several schemas, or not some: one that is narrower may leave no value at all."""

OTHERS = frozenset({"additionalProperties", "patternProperties", "propertyNames"})
"""Keywords that say which other properties an object may have."""

ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
ANNOTATIONS |= {"$defs", "definitions", "$schema", "$id"}
OF_ONE, OF_LIST = ("items", "contains", "additionalProperties"), ("prefixItems", "anyOf")
OF_NAMED = ("properties", "patternProperties", "$defs", "definitions")


def closed(schema: Any) -> Any:
    """The schema with its objects closed where they do not say what else they may have.

    It is left as it is if values must obey several of its schemas at once.
    """
    return _closed(schema) if not any(_meets(each) for each in _parts(schema)) else schema


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    narrowed = dict(schema)
    for key in OF_ONE:
        if key in schema:
            narrowed[key] = _closed(schema[key])
    for key in OF_LIST:
        if isinstance(schema.get(key), list):
            narrowed[key] = [_closed(each) for each in schema[key]]
    for key in OF_NAMED:
        if isinstance(schema.get(key), dict):
            narrowed[key] = {name: _closed(each) for name, each in schema[key].items()}
    if _is_open(schema):
        narrowed["additionalProperties"] = False
    return narrowed


def _is_open(schema: dict[str, Any]) -> bool:
    """Whether it names properties, and asks for no others in any way."""
    named = schema.get("properties")
    if not isinstance(named, dict) or not named or OTHERS & schema.keys():
        return False
    required, least = schema.get("required", []), schema.get("minProperties", 0)
    wants_others = not isinstance(required, list) or not set(map(str, required)) <= named.keys()
    return not wants_others and isinstance(least, int) and least <= len(named)


def _meets(schema: dict[str, Any]) -> bool:
    """Whether a value must obey more than this schema's own keywords."""
    if MEETING & schema.keys():
        return True
    elsewhere = {"$ref", "anyOf"} & schema.keys()
    return bool(elsewhere and schema.keys() - elsewhere - ANNOTATIONS)


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and all within it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in OF_ONE:
        yield from _parts(schema.get(key))
    for key in OF_LIST:
        for each in schema[key] if isinstance(schema.get(key), list) else ():
            yield from _parts(each)
    for key in OF_NAMED:
        for each in schema[key].values() if isinstance(schema.get(key), dict) else ():
            yield from _parts(each)
