"""Calls that are JSON: {"name": …, "arguments": {…}}, one, several in a list, or a name before its arguments.

Hermes, Qwen 2.5 and 3, Granite: <tool_call>{…}</tool_call>. Llama 3: {"name": …, "parameters": {…}}. Mistral:
[TOOL_CALLS][{…}, {…}] or [TOOL_CALLS]name[ARGS]{…}. DeepSeek and Kimi K2: a name and an object between markers.
"""

from __future__ import annotations

from coordinator.text.answer_forms.calls import Calls
from coordinator.text.answer_forms.feed import Feed, MalformedError, Waiting

NAMES = ("name", "function", "tool_name")
ARGUMENTS = ("arguments", "parameters", "args")


def call_object(feed: Feed, calls: Calls) -> Waiting[None]:
    """Reads {"name": …, "arguments": {…}} with its keys in any order; others are passed over.

    So are arguments that are null, or given once more.
    """
    yield from feed.expect("{")
    name, held, id_ = "", "", ""
    begun = False
    while True:
        yield from feed.skip_space()
        key = yield from feed.json_string()
        yield from feed.skip_space()
        yield from feed.expect(":")
        yield from feed.skip_space()
        opening = yield from feed.peek()
        if key in ARGUMENTS and opening in ("{", "[", '"') and not (begun or held):
            if name:
                calls.begin(name, id_)
                begun = True
                yield from arguments(feed, calls)
            elif opening == '"':
                held = yield from feed.json_string()
            else:
                parts: list[str] = []
                yield from feed.json_value(parts.append)
                held = "".join(parts)
        elif key in NAMES and (yield from feed.peek()) == '"':
            name = yield from feed.json_string()
        elif key == "id" and (yield from feed.peek()) == '"':
            id_ = yield from feed.json_string()
        else:
            yield from _passed_over(feed)
        yield from feed.skip_space()
        mark = yield from feed.begins_with(",", "}")
        feed.take(len(mark))
        if mark != ",":
            break
    if not begun:
        if not name:
            raise MalformedError("a call without a name")
        calls.begin(name, id_)
        calls.arguments(held or "{}")


def call_list(feed: Feed, calls: Calls) -> Waiting[None]:
    """Reads [{…}, {…}]."""
    yield from feed.expect("[")
    while True:
        yield from feed.skip_space()
        yield from call_object(feed, calls)
        yield from feed.skip_space()
        mark = yield from feed.begins_with(",", "]")
        feed.take(len(mark))
        if mark != ",":
            return


def arguments(feed: Feed, calls: Calls) -> Waiting[None]:
    """Reads the arguments of the call that was begun: an object, or a string that holds one."""
    yield from feed.skip_space()
    if (yield from feed.peek()) == '"':
        calls.arguments((yield from feed.json_string()))
    else:
        yield from feed.json_value(calls.arguments)


def named_arguments(feed: Feed, calls: Calls, name: str, id_: str = "") -> Waiting[None]:
    """Reads the arguments of a call whose name was read already; MalformedError before anything is told."""
    name = name.strip()
    yield from feed.skip_space()
    if not name or (yield from feed.peek()) != "{":
        raise MalformedError("a call without its arguments")
    calls.begin(name, id_)
    yield from feed.json_value(calls.arguments)


def _passed_over(feed: Feed) -> Waiting[None]:
    character = yield from feed.peek()
    if character == '"':
        yield from feed.json_string()
    elif character in ("{", "["):
        yield from feed.json_value(lambda _: None)
    else:
        while (character := (yield from feed.peek())) and character not in ",}]":
            feed.take(1)
