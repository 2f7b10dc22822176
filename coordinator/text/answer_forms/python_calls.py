"""Calls written as Python: [f(a=1, b="x"), g()], as Llama 3.2 and 4 and LFM2 write them. Nothing of it is executed.

The text of the list is read to its end and parsed by Python's own parser; only names, and literals for arguments, may
be in it.
"""

from __future__ import annotations

import ast
import json
from typing import Any

from coordinator.text.answer_forms.calls import Calls
from coordinator.text.answer_forms.feed import Feed, MalformedError, Waiting

MAX_CHARACTERS = 64 << 10  # Python's parser is not to be given more


def call_list(feed: Feed, calls: Calls) -> Waiting[None]:
    """Reads the whole list."""
    parts: list[str] = []
    yield from _list_text(feed, parts)
    found = _parsed("".join(parts))
    for name, arguments in found:
        calls.begin(name)
        calls.arguments(json.dumps(arguments, ensure_ascii=False))


def _list_text(feed: Feed, parts: list[str]) -> Waiting[None]:
    """Reads brackets to their match; those inside strings do not count."""
    if (yield from feed.peek()) != "[":
        raise MalformedError("no list")
    depth, quote, size = 0, "", 0
    while True:
        words = ("\\", quote) if quote else ("'", '"', "[", "(", "{", "]", ")", "}")
        before, word = yield from feed.until(*words)
        parts.append(before + word)
        size += len(before) + len(word)
        if not word or size > MAX_CHARACTERS:
            raise MalformedError("a list without an end")
        if word == "\\":
            yield from feed.peek()
            parts.append(feed.take(1))
        elif word in "'\"":
            quote = "" if quote else word
        else:
            depth += 1 if word in "[({" else -1
            if depth == 0:
                return


def _parsed(text: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise MalformedError("no Python") from error
    if not isinstance(tree, ast.List) or not tree.elts:
        raise MalformedError("no list of calls")
    return [_call(node) for node in tree.elts]


def _call(node: ast.expr) -> tuple[str, dict[str, Any]]:
    if not isinstance(node, ast.Call) or node.args:
        raise MalformedError("no call by names")
    try:
        arguments = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg}
        json.dumps(arguments, allow_nan=False)
        return ast.unparse(node.func), arguments
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedError("arguments that are no literals") from error


def _value(node: ast.expr) -> Any:
    """A literal; JSON's words for Python's are taken too."""
    if isinstance(node, ast.Name) and node.id in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[node.id]
    return ast.literal_eval(node)
