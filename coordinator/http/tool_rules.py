"""The tools of a request and how they may be called, out of what each API says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from coordinator.http.bodies import refusal
from coordinator.http.failures import HttpError
from layerline.chat import Tool, ToolRules

ANY_ARGUMENTS = {"type": "object", "properties": {}}


def tool_of(name: str, description: str | None, schema: dict[str, Any] | None, *, strict: bool | None) -> Tool:
    """A function that the model may call."""
    return Tool(
        name=name,
        description=description or "",
        parameters=json.dumps(schema or ANY_ARGUMENTS),
        strict=bool(strict),
    )


def check_types(types: Sequence[str | None], known: str) -> None:
    """Refuses tools that the server would have to run itself, as OpenAI and Anthropic have some."""
    for index, type_ in enumerate(types):
        if type_ not in (None, known):
            raise refusal(f"tools[{index}].type", f"layerline has no tool {type_[:40]!r} of its own.")


def rules_of(
    tools: Sequence[Tool], choice: str, *, only: str = "", parallel: bool = True, written: str = ""
) -> ToolRules | None:
    """The rules for these tools; None without any. HttpError for a choice that does not go with them."""
    if not tools:
        if choice == "required":
            raise HttpError(400, "tool_choice needs tools.", param="tool_choice")
        return None
    if only and only not in (tool.name for tool in tools):
        raise HttpError(400, f"tool_choice names {only[:60]!r}, which is not among the tools.", param="tool_choice")
    return ToolRules(tools=tuple(tools), choice=choice, only=only, parallel=parallel, format=written)
