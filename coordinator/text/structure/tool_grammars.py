"""Grammars of calls to tools, in the form that a model writes them: where a call is a must, or its arguments are.

Written in llguidance's Lark: `%json` holds a value to a schema, and `<[id]>` is a control token, which has no text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.text.answer_forms.calls import is_text
from coordinator.text.answer_forms.form import AnswerForm
from coordinator.text.structure.closed_objects import closed
from coordinator.text.structure.json_options import JSON_OPTIONS
from layerline.chat import Tool, ToolRules
from layerline.errors import RequestError


class Syntax(str):
    """A piece of a grammar as it stands; other texts are what a model writes."""

    __slots__ = ()


TOOL_NAME = re.compile(r"[A-Za-z0-9_.:/ -]{1,128}")
VALUE = Syntax("VALUE")
OPEN, CLOSE, MAY_BE, OR = Syntax("("), Syntax(")"), Syntax(")?"), Syntax("|")
NUMBER = Syntax("/[0-9]{1,3}/")
ANY_TEXT = Syntax("/(?s:.*)/")
VALUE_RULE = f"{VALUE}: /([^<]|<+[^<\\/])*/"
UNREADABLE = re.compile(r"[<>\n()\[\]{}=,'\"]")  # of keys, in the formats that write these without quotation marks
ELSEWHERE = frozenset({"$ref", "anyOf", "allOf", "oneOf"})  # where the properties of an object may be


@dataclass(frozen=True, kw_only=True, slots=True)
class Writing:
    """How a format writes calls: `begin` and `end` round all of them, `each_begin` and `each_end` round each.

    `between` stands between two, and `body` is the call itself. Where an answer is a call or none from its beginning,
    and no marker tells which, `free` is an answer without any. `before` may stand before either,
    and `said` stands before an answer's text.
    """

    body: Callable[[Tool], list[str]]
    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    each_begin: tuple[str, ...] = ()
    each_end: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    free: tuple[str, ...] = ()


class ToolGrammars:
    """The grammars for a chat's tools; `control_id` tells a control token's id, None for what is text."""

    def __init__(self, form: AnswerForm, rules: ToolRules, control_id: Callable[[str], int | None]) -> None:
        assert form.harmony or form.tools is not None, "a form for a chat whose tools may be called"
        self._writing = WRITINGS[form.tools.name if form.tools else "gpt_oss"]
        self._rules = rules
        self._control_id = control_id

    @property
    def trigger(self) -> str:
        """The text with which calls begin, wherever it comes; empty where that does not tell a call."""
        return "" if self._writing.free else "".join((*self._writing.begin, *self._writing.each_begin))

    def required(self) -> str:
        """The grammar of an answer that is a call, or several."""
        return self._whole("calls")

    def not_required(self) -> str:
        """The grammar of a whole answer that is calls or has none, for a format without a trigger."""
        return self._whole("calls | free", f"free: {self._items(self._writing.free)}")

    def or_json(self, schema: str) -> str:
        """The grammar of an answer that is calls, or JSON by a schema."""
        json_syntax = Syntax(f"%json {json.dumps(with_options(json.loads(schema)))}")
        return self._whole("calls | answer", f"answer: {self._items((*self._writing.said, json_syntax))}")

    def behind_trigger(self) -> str:
        """The grammar of what comes behind the trigger, up to the end of the calls."""
        written = self._writing
        more = f" ({self._items((*written.between, *written.each_begin))} call)*" if self._rules.parallel else ""
        start = f"start: call{more} {self._items(written.end)}"
        return "\n".join([start, f"call: one_call {self._items(written.each_end)}", *self._calls(self._rules.tools)])

    def _whole(self, answer: str, *rules: str) -> str:
        one, written = self._rules.only, self._writing
        tools = [tool for tool in self._rules.tools if not one or tool.name == one]
        before = f"({self._items(written.before)})? " if written.before else ""
        more = f" ({self._items(written.between)} call)*" if self._rules.parallel and not one else ""
        calls = f"calls: {self._items(written.begin)} call{more} {self._items(written.end)}"
        call = f"call: {self._items(written.each_begin)} one_call {self._items(written.each_end)}"
        return "\n".join([f"start: {before}({answer})", calls, call, *rules, *self._calls(tools)])

    def _calls(self, tools: Sequence[Tool]) -> list[str]:
        rules = ["one_call: " + " | ".join(f"call_{index}" for index in range(len(tools)))]
        for index, tool in enumerate(tools):
            if not TOOL_NAME.fullmatch(tool.name):
                raise RequestError(f"The name of the tool {tool.name[:60]!r} cannot be held to.")
            try:
                rules.append(f"call_{index}: {self._items(self._writing.body(tool))}")
            except (TypeError, ValueError, AttributeError) as error:  # a schema of wrong kinds
                raise _unheld(tool, f"it is no JSON schema ({error})") from None
        return [*rules, VALUE_RULE]

    def _items(self, items: Sequence[str]) -> str:
        """Pieces of a grammar in a row: control tokens by their ids, texts in quotation marks."""
        return " ".join(self._item(item) for item in items) or '""'

    def _item(self, item: str) -> str:
        if isinstance(item, Syntax):
            return item
        id_ = self._control_id(item)
        return json.dumps(item, ensure_ascii=False) if id_ is None else f"<[{id_}]>"


def with_options(schema: Any) -> Any:
    """A schema with how its JSON is written: without white space of a model's own, which may never end."""
    return {**schema, "x-guidance": JSON_OPTIONS} if isinstance(schema, dict) else schema


def _unheld(tool: Tool, why: str) -> RequestError:
    return RequestError(f"The arguments of the tool {tool.name[:60]!r} cannot be held to their schema: {why}.")


def schema_of(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments, which are an object; of a tool that is not strict too."""
    schema = json.loads(tool.parameters)
    assert isinstance(schema, dict), "checked where the template is given it"
    if schema.setdefault("type", "object") != "object":
        raise _unheld(tool, "they are not an object")
    if tool.strict and not ELSEWHERE & schema.keys():
        schema.setdefault("additionalProperties", False)
    narrowed: dict[str, Any] = closed(schema)
    return narrowed


def _json(tool: Tool) -> Syntax:
    return Syntax(f"%json {json.dumps(with_options(schema_of(tool)))}")


def _named_object(key: str, before: str = "", after: str = "") -> Callable[[Tool], list[str]]:
    def body(tool: Tool) -> list[str]:
        name = json.dumps(tool.name)
        return [f'{before}{{"name": {name}, "{key}": ', _json(tool), f"}}{after}"]

    return body


def _behind_name(*marks: str, before: str = "") -> Callable[[Tool], list[str]]:
    return lambda tool: [f"{before}{tool.name}", *marks, _json(tool)]


def _function_tags(tool: Tool) -> list[str]:
    """<function=NAME>, and a parameter for each property in order."""
    items = [f"\n<function={tool.name}>\n"]
    for key, value, required in _properties(tool):
        parameter = [f"<parameter={key}>\n", *value, "\n</parameter>\n"]
        items += parameter if required else [OPEN, *parameter, MAY_BE]
    return [*items, "</function>\n"]


def _key_tags(tool: Tool) -> list[str]:
    """NAME, and a key and a value for each property in order."""
    items = [f"{tool.name}\n"]
    for key, value, required in _properties(tool):
        pair = ["<arg_key>", key, "</arg_key>", "\n", "<arg_value>", *value, "</arg_value>", "\n"]
        items += pair if required else [OPEN, *pair, MAY_BE]
    return items


def _python(tool: Tool) -> list[str]:
    """name(key=value, …), with JSON for values, in the order of the properties."""
    items, separator = [f"{tool.name}("], ""
    for key, value, required in _properties(tool, quoted=True):
        pair = [f"{separator}{key}=", *value]
        items += pair if required or not separator else [OPEN, *pair, MAY_BE]
        separator = ", "
    return [*items, ")"]


def _properties(tool: Tool, *, quoted: bool = False) -> list[tuple[str, list[str], bool]]:
    """The name of each property, what its value may be, and whether it must be there; those that must come first.

    Strings stand without quotation marks unless they are `quoted`; all else is JSON.
    """
    schema = schema_of(tool)
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    required = set(schema.get("required") or ())
    found = []
    for key, value in (schema.get("properties") or {}).items():
        if UNREADABLE.search(key):
            raise _unheld(tool, f"{key[:60]!r} has letters that calls of this model cannot have in a name")
        if quoted or not is_text(value):
            own = {**value, **definitions} if isinstance(value, dict) else value
            items: list[str] = [Syntax(f"%json {json.dumps(with_options(own))}")]
        else:
            items = _plain_text(f"{tool.name[:60]!r}, {key[:60]!r}", value)
        found.append((key, items, key in required))
    return sorted(found, key=lambda each: not each[2])


def _plain_text(where: str, schema: dict[str, Any]) -> list[str]:
    """A string as it stands, which cannot have the tag in it that ends it."""
    if "enum" in schema or "const" in schema:
        words = [_word(where, each) for each in (schema["enum"] if "enum" in schema else [schema["const"]])]
        if not words:
            raise RequestError(f"The argument {where} may have no value at all.")
        return [OPEN, *_alternatives(words), CLOSE]
    if unknown := {"pattern", "format"} & set(schema):
        raise RequestError(f"The argument {where} has {min(unknown)!r}, which this model's calls cannot be held to.")
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if not least and most is None:
        return [VALUE]
    return [Syntax(f"/[^<]{{{int(least)},{'' if most is None else int(most)}}}/")]


def _word(where: str, value: object) -> str:
    if isinstance(value, str) and value and value == value.strip() and "</" not in value:
        return value
    raise RequestError(f"The argument {where} may be {value!r:.60}, which this model's calls cannot be held to.")


def _alternatives(words: Sequence[str]) -> list[str]:
    items: list[str] = []
    for word in words:
        items += [OR, word] if items else [word]
    return items


WRITINGS: dict[str, Writing] = {
    "hermes": Writing(
        body=_named_object("arguments", "\n", "\n"),
        each_begin=("<tool_call>",),
        each_end=("</tool_call>",),
        between=("\n",),
    ),
    "qwen3_coder": Writing(
        body=_function_tags, each_begin=("<tool_call>",), each_end=("</tool_call>",), between=("\n",)
    ),
    "glm": Writing(body=_key_tags, each_begin=("<tool_call>",), each_end=("</tool_call>",), between=("\n",)),
    "llama3_json": Writing(body=_named_object("parameters"), between=("; ",), free=(Syntax(r"/(?s:\s*([^{\s].*)?)/"),)),
    "mistral": Writing(body=_behind_name("[ARGS]"), each_begin=("[TOOL_CALLS]",)),
    "deepseek": Writing(
        begin=("<｜tool▁calls▁begin｜>",),
        body=_behind_name("<｜tool▁sep｜>"),
        each_begin=("<｜tool▁call▁begin｜>",),
        each_end=("<｜tool▁call▁end｜>",),
        end=("<｜tool▁calls▁end｜>",),
    ),
    "kimi": Writing(
        begin=("<|tool_calls_section_begin|>",),
        body=lambda tool: [f"functions.{tool.name}:", NUMBER, "<|tool_call_argument_begin|>", _json(tool)],
        each_begin=("<|tool_call_begin|>",),
        each_end=("<|tool_call_end|>",),
        end=("<|tool_calls_section_end|>",),
    ),
    "lfm2": Writing(begin=("<|tool_call_start|>", "["), body=_python, between=(", ",), end=("]", "<|tool_call_end|>")),
    "pythonic": Writing(
        begin=("[",), body=_python, between=(", ",), end=("]",), free=(Syntax(r"/(?s:\s*([^\[\s].*)?)/"),)
    ),
    "gpt_oss": Writing(
        body=lambda tool: [
            f"commentary to=functions.{tool.name} ",
            "<|constrain|>",
            "json",
            "<|message|>",
            _json(tool),
        ],
        each_begin=("<|channel|>",),
        each_end=("<|call|>",),
        before=("<|channel|>", "analysis", "<|message|>", ANY_TEXT, "<|end|>", "<|start|>", "assistant"),
        said=("<|channel|>", "final", "<|message|>"),
        free=("<|channel|>", "final", "<|message|>", ANY_TEXT),
    ),
}
"""By the names of the formats."""
