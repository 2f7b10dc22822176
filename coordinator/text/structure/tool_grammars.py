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
from layerline.chat import Tool, ToolRules
from layerline.errors import RequestError


class Syntax(str):
    """A piece of a grammar as it stands; other texts are what a model writes."""

    __slots__ = ()


TOOL_NAME = re.compile(r"[A-Za-z0-9_.:/ -]{1,128}")
VALUE = Syntax("VALUE")
OPEN, CLOSE, MAY_BE, OR = Syntax("("), Syntax(")"), Syntax(")?"), Syntax("|")
VALUE_RULE = f"{VALUE}: /([^<]|<[^\\/])*/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Writing:
    """How a format writes a call: `begin` and `end` round all calls, `between` them, and the call itself by `body`.

    `trigger` is the text after which a call must be one, `rest_from` how much of the call it has said already.
    """

    body: Callable[[Tool], list[str]]
    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    each_begin: tuple[str, ...] = ()
    each_end: tuple[str, ...] = ()


class ToolGrammars:
    """The grammars for a chat's tools; `control_id` tells a control token's id, None for what is text."""

    def __init__(self, form: AnswerForm, rules: ToolRules, control_id: Callable[[str], int | None]) -> None:
        name = "gpt_oss" if form.harmony else form.tools.name if form.tools else "hermes"
        self._writing = WRITINGS[name]
        self._rules = rules
        self._control_id = control_id

    @property
    def trigger(self) -> str:
        """The text with which calls begin."""
        return "".join((*self._writing.begin, *self._writing.each_begin))

    def required(self) -> str:
        """The grammar of an answer that is a call, or several."""
        one, written = self._rules.only, self._writing
        tools = [tool for tool in self._rules.tools if not one or tool.name == one]
        more = f" ({self._marks(written.between)} call)*" if self._rules.parallel and not one else ""
        start = f"start: {self._marks(written.begin)} call{more} {self._marks(written.end)}"
        call = f"call: {self._marks(written.each_begin)} one_call {self._marks(written.each_end)}"
        return "\n".join([start, call, *self._calls(tools)])

    def behind_trigger(self) -> str:
        """The grammar of what comes behind the trigger, up to the end of the calls; strict tools are held to."""
        written = self._writing
        more = f" ({self._marks((*written.between, *written.each_begin))} call)*" if self._rules.parallel else ""
        start = f"start: call{more} {self._marks(written.end)}"
        call = f"call: one_call {self._marks(written.each_end)}"
        return "\n".join([start, call, *self._calls(self._rules.tools)])

    def _calls(self, tools: Sequence[Tool]) -> list[str]:
        rules = ["one_call: " + " | ".join(f"call_{index}" for index in range(len(tools)))]
        for index, tool in enumerate(tools):
            if not TOOL_NAME.fullmatch(tool.name):
                raise RequestError(f"The name of the tool {tool.name[:60]!r} cannot be held to.")
            rules.append(f"call_{index}: " + " ".join(self._item(item) for item in self._writing.body(tool)))
        return [*rules, VALUE_RULE]

    def _item(self, item: str) -> str:
        return item if isinstance(item, Syntax) else self._mark(item)

    def _marks(self, texts: Sequence[str]) -> str:
        return " ".join(self._mark(text) for text in texts)

    def _mark(self, text: str) -> str:
        """A text, in which control tokens are told apart."""
        id_ = self._control_id(text)
        if id_ is not None:
            return f"<[{id_}]>"
        return json.dumps(text, ensure_ascii=False) if text else '""'


def schema_of(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments, which are an object; of a tool that is not strict too."""
    schema = json.loads(tool.parameters)
    assert isinstance(schema, dict), "checked where the template is given it"
    schema.setdefault("type", "object")
    if tool.strict:
        schema.setdefault("additionalProperties", False)
    return schema


def _json(tool: Tool) -> Syntax:
    return Syntax(f"%json {json.dumps(schema_of(tool))}")


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
        if quoted or not is_text(value):
            own = {**value, **definitions} if isinstance(value, dict) else value
            items: list[str] = [Syntax(f"%json {json.dumps(own)}")]
        else:
            items = _plain_text(f"{tool.name[:60]!r}, {key[:60]!r}", value)
        found.append((key, items, key in required))
    return sorted(found, key=lambda each: not each[2])


def _plain_text(where: str, schema: dict[str, Any]) -> list[str]:
    """A string as it stands, which cannot have the tag in it that ends it."""
    if isinstance(schema.get("enum"), list):
        return [OPEN, *_alternatives([str(each) for each in schema["enum"]]), CLOSE]
    if "const" in schema:
        return [str(schema["const"])]
    if unknown := {"pattern", "format"} & set(schema):
        raise RequestError(f"The argument {where} has {min(unknown)!r}, which this model's calls cannot be held to.")
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if not least and most is None:
        return [VALUE]
    return [Syntax(f"/[^<]{{{int(least)},{'' if most is None else int(most)}}}/")]


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
    "llama3_json": Writing(body=_named_object("parameters"), between=("; ",)),
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
        body=lambda tool: [f"functions.{tool.name}:0", "<|tool_call_argument_begin|>", _json(tool)],
        each_begin=("<|tool_call_begin|>",),
        each_end=("<|tool_call_end|>",),
        end=("<|tool_calls_section_end|>",),
    ),
    "lfm2": Writing(begin=("<|tool_call_start|>", "["), body=_python, between=(", ",), end=("]", "<|tool_call_end|>")),
    "pythonic": Writing(begin=("[",), body=_python, between=(", ",), end=("]",)),
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
    ),
}
"""By the names of the formats."""
