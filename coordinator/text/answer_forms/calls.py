"""The calls of one answer, as a format reads them: numbers, ids, and pieces in order."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any

from layerline.answer import ToolCallPiece
from layerline.chat import ToolRules

MOST_CALLS = 128  # of one answer
TEXTUAL = ("string", "null")
ALPHABET = string.ascii_letters + string.digits


class Calls:
    """Numbers the calls of an answer to a chat with `rules`, gives them ids, and hands their pieces to `tell`."""

    def __init__(self, rules: ToolRules | None, tell: Callable[[ToolCallPiece], None]) -> None:
        self.count = 0
        self._tell = tell
        self._ids: set[str] = set()
        self._most = MOST_CALLS if rules is None or rules.parallel else 1
        self._drops = False  # what is told of a call that is one too many
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
        """A call of that tool begins; its own id counts if no other call has it. One too many is not told."""
        self._drops = self.count >= self._most
        if self._drops:
            return
        if not id_ or id_ in self._ids:
            id_ = "call_" + "".join(secrets.choice(ALPHABET) for _ in range(24))
        self._ids.add(id_)
        self._tell(ToolCallPiece(call=self.count, id=id_, name=name))
        self.count += 1

    def arguments(self, text: str) -> None:
        """More of the arguments of the call that was begun last."""
        if not self._drops:
            self._tell(ToolCallPiece(call=self.count - 1, arguments=text))


def is_text(schema: object) -> bool:
    """Whether a schema takes a string and nothing that would be written without quotation marks."""
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if isinstance(schema.get("enum"), list) and kind is None:
        return all(isinstance(value, str) for value in schema["enum"])
    return kind == "string" or (isinstance(kind, list) and "string" in kind and all(k in TEXTUAL for k in kind))
