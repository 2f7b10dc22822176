"""Calls written as Python: [f(a=1, b="x"), g()], as Llama 3.2 and 4 and LFM2 write them. Nothing of it is executed.

The text of the list is read to its end. Names of functions and of arguments may be any words; an argument is JSON or a
literal of Python's.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from coordinator.text.answer_forms.calls import Calls
from coordinator.text.answer_forms.feed import Feed, MalformedError, Waiting
from coordinator.text.answer_forms.strict_json import loaded, whole

MAX_CHARACTERS = 64 << 10  # Python's parser is not to be given more
JSON_WORDS = {"true": True, "false": False, "null": None}

_NAME = re.compile(r"\s*([^\s()\[\]{}=,'\"][^()\[\]{}=,'\"]*?)\s*\(")
_KEY = re.compile(r"\s*([^\s()\[\]{}=,'\"][^()\[\]{}=,'\"]*?)\s*=")
_SEPARATOR = re.compile(r"\s*([,)\]])")


def call_list(feed: Feed, calls: Calls) -> Waiting[None]:
    """Reads the whole list."""
    parts: list[str] = []
    yield from _list_text(feed, parts)
    found = _parsed("".join(parts).strip())
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
    """The calls in [f(…), g(…)]."""
    place, found = 1, []
    while True:
        call, place = _call(text, place)
        found.append(call)
        separator, place = _separator(text, place, ",]")
        if separator == "]":
            return found


def _call(text: str, place: int) -> tuple[tuple[str, dict[str, Any]], int]:
    """The call that begins there, and the place behind it."""
    name = _NAME.match(text, place)
    if name is None:
        raise MalformedError("no call")
    place, arguments = name.end(), {}
    if separator := _SEPARATOR.match(text, place):
        if separator[1] != ")":
            raise MalformedError("no argument")
        return (name[1], {}), separator.end()
    while True:
        key = _KEY.match(text, place)
        if key is None:
            raise MalformedError("no call by names")
        end = _value_end(text, key.end())
        arguments[key[1]] = _value(text[key.end() : end].strip())
        separator_word, place = _separator(text, end, ",)")
        if separator_word == ")":
            return (name[1], arguments), place


def _separator(text: str, place: int, wanted: str) -> tuple[str, int]:
    found = _SEPARATOR.match(text, place)
    if found is None or found[1] not in wanted:
        raise MalformedError("no list of calls")
    return found[1], found.end()


def _value_end(text: str, place: int) -> int:
    """Where the value ends that begins there: before a comma or bracket that is not its own."""
    depth, quote = 0, ""
    while place < len(text):
        character = text[place]
        if quote:
            place += character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "[({":
            depth += 1
        elif depth == 0 and character in ",)":
            return place
        elif character in "])}":
            depth -= 1
        place += 1
    raise MalformedError("a value without an end")


def _value(text: str) -> Any:
    """JSON, or a literal of Python's with JSON's words in it too."""
    try:
        return loaded(text)
    except ValueError:
        pass
    try:
        value = ast.literal_eval(_Words().visit(ast.parse(text, mode="eval")))
        return loaded(whole(json.dumps(value, ensure_ascii=False, allow_nan=False)))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise MalformedError("an argument that is no literal") from error


class _Words(ast.NodeTransformer):
    """Puts constants in the place of JSON's words."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name."""
        return ast.Constant(JSON_WORDS[node.id]) if node.id in JSON_WORDS else node
