"""Calls whose arguments stand between tags, each by itself: Qwen3-Coder's and GLM's. They become JSON as they come.

A value of which the schema says that it is a string is taken as it stands; any other is JSON where it can be read as
such, and else a string too.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from coordinator.text.answer_forms.calls import Calls, is_text
from coordinator.text.answer_forms.feed import Feed, MalformedError, Waiting
from coordinator.text.answer_forms.strict_json import loaded


def function_call(feed: Feed, calls: Calls) -> Waiting[None]:
    """Reads <function=NAME> <parameter=KEY>VALUE</parameter> … </function>."""
    yield from feed.skip_space()
    yield from feed.expect("<function=")
    name = (yield from _up_to(feed, ">")).strip()
    if not name:
        raise MalformedError("a call without a name")
    yield from feed.skip_space()
    if not (yield from feed.begins_with("<parameter=", "</function>")):
        raise MalformedError("a call without parameters")
    arguments = _Arguments(calls, name)
    while (yield from feed.begins_with("<parameter=")):
        feed.take(len("<parameter="))
        key, _ = yield from feed.until(">")
        yield from arguments.value(feed, key.strip(), "</parameter>", trims=True)
        yield from feed.skip_space()
    arguments.end()
    if (yield from feed.begins_with("</function>")):
        feed.take(len("</function>"))


def keyed_call(feed: Feed, calls: Calls) -> Waiting[None]:
    """Reads NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> …, up to the marker that ends the call."""
    name = ""
    while (character := (yield from feed.peek())) and character not in "<\n":
        name += feed.take(1)
    name = name.strip()
    yield from feed.skip_space()
    if not name or not (yield from feed.begins_with("<arg_key>", "</tool_call>")):
        raise MalformedError("a call without a name")
    arguments = _Arguments(calls, name)
    while (yield from feed.begins_with("<arg_key>")):
        feed.take(len("<arg_key>"))
        key, _ = yield from feed.until("</arg_key>")
        yield from feed.skip_space()
        if (yield from feed.begins_with("<arg_value>")):
            feed.take(len("<arg_value>"))
            yield from arguments.value(feed, key.strip(), "</arg_value>", trims=False)
        yield from feed.skip_space()
    arguments.end()


class _Arguments:
    """The arguments of one call as they are written: an object of JSON, told piece by piece."""

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls = calls
        self._properties = calls.properties(name)
        self._opened = False
        calls.begin(name)

    def value(self, feed: Feed, key: str, end: str, *, trims: bool) -> Waiting[None]:
        """Reads a value up to `end`; one line end on either side of it is not its own where the format `trims`."""
        self._calls.arguments(f"{', ' if self._opened else '{'}{json.dumps(key, ensure_ascii=False)}: ")
        self._opened = True
        if trims and (yield from feed.begins_with("\n")):
            feed.take(1)
        if is_text(self._properties.get(key)):
            self._calls.arguments('"')
            yield from self._text(feed, end, trims=trims)
            self._calls.arguments('"')
            return
        text, _ = yield from feed.until(end)
        self._calls.arguments(_as_json(text.removesuffix("\n") if trims else text))

    def end(self) -> None:
        """No further argument comes."""
        self._calls.arguments("}" if self._opened else "{}")

    def _text(self, feed: Feed, end: str, *, trims: bool) -> Waiting[None]:
        held = ""

        def tell(text: str) -> None:
            nonlocal held
            text = held + text
            held = "\n" if trims and text.endswith("\n") else ""
            _tell_quoted(self._calls.arguments, text[: len(text) - len(held)])

        yield from feed.until(end, tell=tell)


def _tell_quoted(tell: Callable[[str], None], text: str) -> None:
    if text:
        tell(json.dumps(text, ensure_ascii=False)[1:-1])


def _as_json(text: str) -> str:
    stripped = text.strip()
    try:
        value = loaded(stripped)
    except ValueError:
        return json.dumps(_python_word(stripped, text), ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def _python_word(word: str, text: str) -> object:
    """Python's words for JSON's, which models mix up."""
    return {"True": True, "False": False, "None": None}.get(word, text)


def _up_to(feed: Feed, end: str) -> Waiting[str]:
    text, _ = yield from feed.until(end)
    return text
