"""Tools and calls out of what a script gives: nouns, or dicts in the form of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from layerline.chat import Tool, ToolCall, ToolRules
from layerline.checks import shown
from layerline.errors import UsageError

GivenTool = Tool | Mapping[str, Any]

HOW = 'Like {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}.'


def tool_rules(given: object) -> ToolRules | None:
    """The rules for a list of tools, any of which may be called; None for an empty one."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise UsageError(f"tools must be a list of tools or ToolRules, not {shown(given)}.", remedy=HOW)
    tools = tuple(_tool(index, each) for index, each in enumerate(given))
    try:
        return ToolRules(tools=tools) if tools else None
    except ValueError as error:
        raise UsageError(f"tools: {error}.") from error


def tool_call(where: str, given: object) -> ToolCall:
    """A call that an assistant made."""
    if isinstance(given, ToolCall):
        return given
    if isinstance(given, Mapping):
        function = given.get("function", given)
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            arguments = function.get("arguments", "{}")
            text = arguments if isinstance(arguments, str) else _as_json(where, arguments)
            return ToolCall(id=str(given.get("id", "")), name=function["name"], arguments=text)
    raise UsageError(f"{where} has {shown(given)}, which is no call of a tool.")


def _tool(index: int, given: object) -> Tool:
    if isinstance(given, Tool):
        return given
    function = given.get("function", given) if isinstance(given, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise UsageError(f"tools[{index}] is {shown(given)}, which is no function.", remedy=HOW)
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    try:
        return Tool(
            name=function["name"],
            description=str(function.get("description") or ""),
            parameters=_as_json(f"tools[{index}].parameters", parameters),
            strict=bool(function.get("strict")),
        )
    except ValueError as error:
        raise UsageError(f"tools[{index}]: {error}.") from error


def _as_json(where: str, value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{where} cannot be written as JSON: {error}.") from None
