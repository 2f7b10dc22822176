"""Thirty tools, with arguments of all kinds."""

from __future__ import annotations

import json
from typing import Any

from layerline.chat import Tool

TEXT: dict[str, Any] = {"type": "string", "maxLength": 6}
DAY: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 9}
WORD: dict[str, Any] = {"type": "string", "enum": ["red", "green", "blue"]}
FLAG: dict[str, Any] = {"type": "boolean"}
SHARE: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}
LIST: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 2}
PLACE: dict[str, Any] = {
    "type": "object",
    "properties": {"lat": SHARE, "name": TEXT},
    "required": ["lat"],
    "additionalProperties": False,
}
KINDS = {"text": TEXT, "day": DAY, "word": WORD, "flag": FLAG, "share": SHARE, "list": LIST, "place": PLACE}


def tool(name: str, *kinds: str, required: int) -> Tool:
    """A tool with arguments of these kinds, of which the first so many must be there."""
    schema = {
        "type": "object",
        "properties": {kind: KINDS[kind] for kind in kinds},
        "required": list(kinds[:required]),
        "additionalProperties": False,
    }
    return Tool(name=name, description=f"Does {name}.", parameters=json.dumps(schema))


NAMES = tuple(KINDS)
TOOLS = (
    tool("get_weather", "day", "word", required=2),
    tool("now", required=0),
    tool("find", "flag", "place", "list", required=1),
    tool("say", "text", "share", required=1),
    *(
        tool(f"tool_{number}", *(NAMES[(number + step) % 7] for step in range(1 + number % 4)), required=number % 3)
        for number in range(26)
    ),
)
