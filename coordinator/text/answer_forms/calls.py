"""The calls of one answer, as a format reads them: numbers, ids, and pieces in order."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any

from layerline.answer import ToolCallPiece
from layerline.chat import ToolRules

ALPHABET = string.ascii_letters + string.digits


class Calls:
    """Numbers the calls of an answer to a chat with `rules`, gives them ids, and hands their pieces to `tell`."""

    def __init__(self, rules: ToolRules | None, tell: Callable[[ToolCallPiece], None]) -> None:
        self.count = 0
        self._tell = tell
        self._schemas = {tool.name: tool.parameters for tool in rules.tools} if rules else {}

    def properties(self, name: str) -> Mapping[str, Any]:
        """What the schema of a tool says of its arguments; nothing where it says nothing."""
        try:
            schema = json.loads(self._schemas.get(name, "{}"))
        except ValueError:
            return {}
        found = schema.get("properties") if isinstance(schema, dict) else None
        return found if isinstance(found, dict) else {}

    def begin(self, name: str, id_: str = "") -> None:
        """A call of that tool begins."""
        letters = "".join(secrets.choice(ALPHABET) for _ in range(24))
        self._tell(ToolCallPiece(call=self.count, id=id_ or f"call_{letters}", name=name))
        self.count += 1

    def arguments(self, text: str) -> None:
        """More of the arguments of the call that was begun last."""
        self._tell(ToolCallPiece(call=self.count - 1, arguments=text))


def is_text(schema: object) -> bool:
    """Whether a schema takes a string and nothing that would be written without quotation marks."""
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if isinstance(schema.get("enum"), list) and kind is None:
        return all(isinstance(value, str) for value in schema["enum"])
    return kind == "string" or (isinstance(kind, list) and set(kind) <= {"string", "null"} and "string" in kind)
