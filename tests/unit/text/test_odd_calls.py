"""Calls that are odd and readable all the same, or that cannot be and are text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.text.answer_forms.form import AnswerForm
from coordinator.text.answer_forms.reader import AnswerReader
from coordinator.text.answer_forms.strict_json import loaded, whole
from layerline.chat import Tool, ToolRules

TOOL = Tool(name="f", parameters='{"type": "object", "properties": {"a": {}, "t": {"type": "string"}}}')


def read(name: str, text: str, *, parallel: bool = True) -> tuple[list[tuple[str, str]], str, list[str]]:
    """The calls with their arguments, the text, and the ids of the calls."""
    rules = ToolRules(tools=(TOOL,), format=name, parallel=parallel)
    reader = AnswerReader(AnswerForm.of("", rules), rules)
    parts = [*reader.push(text), *reader.flush()]
    calls: dict[int, list[str]] = {}
    ids = []
    for piece in [part.tool_call for part in parts if part.tool_call]:
        calls.setdefault(piece.call, [piece.name, ""])[1] += piece.arguments
        ids += [piece.id] if piece.id else []
    said = "".join(part.text for part in parts if part.kind == "text")
    return [(name, arguments) for name, arguments in calls.values()], said, ids


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('[f(a={"x": false, "y": [null]})]', "f", {"a": {"x": False, "y": [None]}}),
        ("[get-weather(from='x', a-b=1)]", "get-weather", {"from": "x", "a-b": 1}),
        ("[f(a={'x': true, 'y': (1, 2)})]", "f", {"a": {"x": True, "y": [1, 2]}}),
        ('[f(a="\\ud83d\\ude00, )]")]', "f", {"a": "😀, )]"}),
        ("[a.b()]", "a.b", {}),
    ],
)
def test_python_is_read_with_any_names_and_jsons_words(text: str, name: str, arguments: dict[str, Any]) -> None:
    (call,), said, _ = read("pythonic", text)
    assert (call[0], json.loads(call[1]), said) == (name, arguments, "")


@pytest.mark.parametrize("text", ["[f(1)]", "[f(a=1e999)]", "[f(a=b)]", "[f(a=1]", "[(a=1)]", "[f(a=1) g()]", "[1, 2]"])
def test_what_is_no_call_is_text(text: str) -> None:
    assert read("pythonic", text)[:2] == ([], text)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "f", "arguments": null}', "{}"),
        ('{"arguments": "{}", "name": "f"}', "{}"),
        ('{"name": "f", "arguments": {"a": 1}, "parameters": {"a": 2}}', '{"a": 1}'),
    ],
)
def test_arguments_that_are_null_or_given_twice(text: str, arguments: str) -> None:
    assert read("hermes", f"<tool_call>{text}</tool_call>")[:2] == ([("f", arguments)], "")


@pytest.mark.parametrize("value", ["NaN", "1e999", "[" * 1500])
def test_a_value_that_json_does_not_have_is_text(value: str) -> None:
    text = f"<tool_call>\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>\n</tool_call>"
    ((_, arguments),), _, _ = read("qwen3_coder", text)
    assert json.loads(arguments) == {"a": value}


def test_one_call_is_told_where_no_more_may_be() -> None:
    two = '[{"name": "f", "arguments": {}}, {"name": "f", "arguments": {"a": 1}}]'
    assert len(read("mistral", f"[TOOL_CALLS]{two}")[0]) == 2
    assert read("mistral", f"[TOOL_CALLS]{two}", parallel=False)[0] == [("f", "{}")]


def test_no_two_calls_have_one_id() -> None:
    call = "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    _, _, ids = read("kimi", f"<|tool_calls_section_begin|>{call}{call}<|tool_calls_section_end|>")
    assert ids[0] == "functions.f:0"
    assert len(set(ids)) == 2


def test_an_answer_without_a_header_is_not_lost() -> None:
    assert read("gpt_oss", "to=nowhere, and on")[1] == "to=nowhere, and on"


@pytest.mark.parametrize("text", ["NaN", "1e999", "[" * 100_000, '"\\ud800"', "{"])
def test_json_is_read_strictly(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # in the words of either reader
        loaded(text)


def test_halves_of_characters_are_joined() -> None:
    assert (whole("\ud83d\ude00"), whole("a\ud800b")) == ("😀", "a\ufffdb")
