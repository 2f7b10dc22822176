"""Tools and calls out of what a script gives: nouns, or dicts in the form of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from layerline.chat import TOOL_CHOICES, Tool, ToolCall, ToolRules
from layerline.checks import shown
from layerline.errors import UsageError

GivenTool = Tool | Mapping[str, Any]

HOW = 'Like {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}.'


def tool_rules(given: object, choice: object = "auto", parallel: object = True) -> ToolRules | None:
    """The rules for a list of tools; None for an empty one.

    `choice` is a word of `TOOL_CHOICES`, or the name of the tool that is to be called.
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise UsageError(f"tools must be a list of tools or ToolRules, not {shown(given)}.", remedy=HOW)
    tools = tuple(_tool(index, each) for index, each in enumerate(given))
    if not isinstance(choice, str) or not isinstance(parallel, bool):
        raise UsageError("tool_choice must be text, and parallel_tool_calls True or False.")
    if not tools:
        if choice not in ("auto", "none"):
            raise UsageError("tool_choice needs tools.")
        return None
    named = choice not in TOOL_CHOICES
    try:
        return ToolRules(
            tools=tools, choice="required" if named else choice, only=choice if named else "", parallel=parallel
        )
    except ValueError as error:
        remedy = f"tool_choice is one of {', '.join(TOOL_CHOICES)}, or the name of a tool." if named else ""
        raise UsageError(f"tools: {error}.", remedy=remedy) from error


def tool_call(where: str, given: object) -> ToolCall:
    """A call that an assistant made."""
    if isinstance(given, ToolCall):
        return given
    if isinstance(given, Mapping):
        function = given.get("function", given)
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            arguments = function.get("arguments", "{}")
            text = arguments if isinstance(arguments, str) else as_json(where, arguments)
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
            parameters=as_json(f"tools[{index}].parameters", parameters),
            strict=bool(function.get("strict")),
        )
    except ValueError as error:
        raise UsageError(f"tools[{index}]: {error}.") from error


def as_json(where: str, value: object) -> str:
    """The value as JSON text; UsageError for one that JSON does not have."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{where} cannot be written as JSON: {error}.") from None
