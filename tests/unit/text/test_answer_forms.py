"""Answers with thoughts and calls: however the text comes, the parts are the same, and nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.text.answer_forms.form import NAMES, AnswerForm
from coordinator.text.answer_forms.formats import FORMATS
from coordinator.text.answer_forms.reader import AnswerReader, Part
from coordinator.text.template import render_answer
from layerline.chat import Tool, ToolRules
from layerline.errors import RequestError
from tests.fakes.vocabularies import vocabularies

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "exact": {"type": "boolean"},
        "where": {"type": "object"},
        "note": {"type": ["string", "null"]},
    },
}
TOOL = Tool(name="get_weather", description="The weather.", parameters=json.dumps(SCHEMA))
OTHER = Tool(name="now", parameters='{"type": "object", "properties": {}}')
RULES = ToolRules(tools=(TOOL, OTHER))
ARGUMENTS = {"city": 'Köln "am\nRhein" </b> {x}', "days": 3, "exact": True, "where": {"lat": [1.5, {"a": "}"}]}}
SPLITS = (1, 2, 3, 5, 10_000)


def form(name: str, *, thinks: bool = True) -> AnswerForm:
    """The form with that format."""
    return AnswerForm.of("<think>" if thinks else "", ToolRules(tools=(TOOL, OTHER), format=name))


def read(form: AnswerForm, text: str, size: int, *, rules: ToolRules = RULES, thinks: bool = False) -> list[Part]:
    """The parts of a text that comes in pieces of a size, those of one kind joined."""
    reader = AnswerReader(form, rules, thinks=thinks)
    parts: list[Part] = []
    for start in range(0, len(text), size):
        parts += reader.push(text[start : start + size])
    return parts + reader.flush()


def joined(parts: list[Part]) -> tuple[str, str, list[tuple[str, Any]]]:
    """Thoughts, text, and calls with their arguments."""
    calls: list[tuple[str, str]] = []
    for part in parts:
        if part.tool_call is None:
            continue
        assert part.tool_call.call in (len(calls) - 1, len(calls))
        if part.tool_call.id:
            calls.append((part.tool_call.name, ""))
        name, arguments = calls[part.tool_call.call]
        calls[part.tool_call.call] = (name, arguments + part.tool_call.arguments)
    told = {kind: "".join(part.text for part in parts if part.kind == kind) for kind in ("thinking", "text")}
    return told["thinking"], told["text"], [(name, json.loads(arguments)) for name, arguments in calls]


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_coder(name: str, arguments: dict[str, Any]) -> str:
    parameters = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else as_json(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def as_glm(name: str, arguments: dict[str, Any]) -> str:
    pairs = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{value if isinstance(value, str) else as_json(value)}</arg_value>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def as_python(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def hermes(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{as_json({'name': name, 'arguments': arguments})}\n</tool_call>"


def deepseek(*calls: str) -> str:
    return (
        "<｜tool▁calls▁begin｜>"
        + "".join(f"<｜tool▁call▁begin｜>{c}<｜tool▁call▁end｜>" for c in calls)
        + "<｜tool▁calls▁end｜>"
    )


def kimi(number: int, name: str, arguments: dict[str, Any]) -> str:
    return (
        f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{as_json(arguments)}<|tool_call_end|>"
    )


def harmony(name: str, arguments: dict[str, Any]) -> str:
    header = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return f"<|start|>assistant{header}{as_json(arguments)}<|call|>"


def llama(name: str, arguments: dict[str, Any]) -> str:
    return as_json({"name": name, "parameters": arguments})


A, B = ("get_weather", ARGUMENTS), ("now", dict[str, Any]())
REVERSED = {"arguments": ARGUMENTS, "x": [1], "name": A[0]}
CALLS = {
    "hermes": f"{hermes(*A)}\n{hermes(*B)}",
    "hermes in another order": f"<tool_call>{as_json(REVERSED)}</tool_call>{hermes(*B)}",
    "qwen3_coder": f"{as_coder(*A)}\n{as_coder(*B)}",
    "glm": f"{as_glm(*A)}\n{as_glm(*B)}",
    "deepseek": deepseek(f"{A[0]}<｜tool▁sep｜>{as_json(A[1])}", f"{B[0]}<｜tool▁sep｜>{{}}"),
    "deepseek of V3": deepseek(
        f"function<｜tool▁sep｜>{A[0]}\n```json\n{as_json(A[1])}\n```",
        f"function<｜tool▁sep｜>{B[0]}\n```json\n{{}}\n```",
    ),
    "kimi": f"<|tool_calls_section_begin|>{kimi(0, *A)}{kimi(1, *B)}<|tool_calls_section_end|>",
    "lfm2": f"<|tool_call_start|>[{as_python(*A)}, {as_python(*B)}]<|tool_call_end|>",
    "mistral": f"[TOOL_CALLS]{as_json([{'name': n, 'arguments': a, 'id': 'abcdefghi'} for n, a in (A, B)])}",
    "mistral by name": f"[TOOL_CALLS]{A[0]}[ARGS]{as_json(A[1])}[TOOL_CALLS]{B[0]}[CALL_ID]abc[ARGS]{{}}",
    "llama3_json": f"<|python_tag|>{llama(*A)}; {llama(*B)}",
    "pythonic": f"[{as_python(*A)}, {as_python(*B)}]",
}


@pytest.mark.parametrize("size", SPLITS)
@pytest.mark.parametrize("case", CALLS)
def test_calls_are_the_same_however_they_come(case: str, size: int) -> None:
    name = case.partition(" ")[0]
    whole = form(name).tools is not None and form(name).tools.whole  # type: ignore[union-attr]
    before = "" if whole else "I look.\n\n"
    parts = read(form(name), f"<think>\nHm, <b>\n</think>\n\n{before}{CALLS[case]}", size)
    thoughts, text, calls = joined(parts)
    assert (thoughts, text) == ("Hm, <b>", before.strip())
    assert calls == [A, B]


@pytest.mark.parametrize("size", SPLITS)
def test_harmony_has_channels(size: int) -> None:
    answer = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
    parts = read(AnswerForm(harmony=True), answer + harmony(*A) + harmony(*B), size)
    assert joined(parts) == ("Hm.", "I look.", [A, B])
    final = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"
    assert joined(read(AnswerForm(harmony=True), final, size)) == ("Hm.", "Yes.", [])


@pytest.mark.parametrize("size", SPLITS)
@pytest.mark.parametrize(
    ("text", "thinks", "expected"),
    [
        ("<think>a</think>b", False, ("a", "b")),
        ("\n<think>\n\na b \n</think>\n\nb", False, ("a b", "b")),
        ("a</think>b", True, ("a", "b")),
        ("a < b </thin", True, ("a < b </thin", "")),
        ("b <think>a</think>", False, ("", "b <think>a</think>")),
        ("  b", False, ("", "  b")),
        ("<thin", False, ("", "<thin")),
        ("", False, ("", "")),
    ],
)
def test_thoughts_are_apart(text: str, thinks: bool, expected: tuple[str, str], size: int) -> None:
    parts = read(AnswerForm(thoughts=("<think>", "</think>")), text, size, thinks=thinks)
    assert joined(parts)[:2] == expected


@pytest.mark.parametrize("size", [1, 4, 10_000])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "<tool_call>not JSON</tool_call> and on"),
        ("hermes", 'see <tool_call>{"arguments": {}}</tool_call>'),
        ("hermes", "<tool_call>"),
        ("hermes", "a <tool_call> b <tool_call"),
        ("qwen3_coder", "<tool_call>\n{}</tool_call>"),
        ("glm", "<tool_call>what is this</tool_call"),
        ("lfm2", "<|tool_call_start|>[f(1)]<|tool_call_end|>"),
        ("lfm2", "<|tool_call_start|>[f(a=open)]"),
        ("pythonic", "[1, 2] is a list"),
        ("pythonic", "[__import__('os').system(command='x')(a=1).b]"),
        ("llama3_json", '{"no": "call"} at all'),
        ("mistral", "[TOOL_CALLS] nothing"),
        ("kimi", "<|tool_calls_section_begin|><|tool_call_begin|>x"),
    ],
)
def test_what_is_no_call_is_text(name: str, text: str, size: int) -> None:
    thoughts, told, calls = joined(read(form(name), text, size))
    assert (thoughts, calls) == ("", [])
    assert "".join(told.split()) == "".join(text.split())


MARKS = [mark for each in FORMATS for mark in each.begins] + [
    "<think>",
    "</think>",
    "</tool_call>",
    '{"name": "now", ',
    "[f(",
]


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_junk_ends_in_no_exception(name: str, data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.sampled_from(MARKS) | st.text('{}[]()":,=<>/a \n\\', max_size=8), max_size=12))
    reader = AnswerReader(form(name), RULES)
    for piece in pieces:
        reader.push(piece)
    reader.flush()


def test_one_call_alone_where_that_is_asked_for() -> None:
    rules = ToolRules(tools=(TOOL, OTHER), parallel=False)
    reader = AnswerReader(form("hermes"), rules)
    parts = reader.push(CALLS["hermes"])
    assert reader.is_over
    assert joined(parts)[2] == [A]


def test_a_format_that_does_not_exist_and_a_template_without_tools_are_refused() -> None:
    with pytest.raises(RequestError, match="no format of calls 'mine'"):
        AnswerForm.of("", ToolRules(tools=(TOOL,), format="mine"))
    with pytest.raises(RequestError, match="knows no tools"):
        AnswerForm.of("{{ messages }}", RULES)
    with pytest.raises(RequestError, match="Name the format: deepseek"):
        AnswerForm.of("{{ tools }}", RULES)
    assert AnswerForm.of("{{ messages }}", ToolRules(tools=(TOOL,), choice="none")).tools is None


TEMPLATES = {
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes",
    "Qwen3-Coder": "qwen3_coder",
    "Qwen3.5-4B": "qwen3_coder",
    "GLM-4.6": "glm",
    "moonshotai-Kimi-K2": "kimi",
    "LFM2.5-8B-A1B": "lfm2",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral",
    "meta-llama-Llama-3.1-8B-Instruct": "llama3_json",
    "meta-llama-Llama-3.3-70B-Instruct": "llama3_json",
    "openai-gpt-oss-120b": "gpt_oss",
}


@pytest.mark.more
@pytest.mark.parametrize("template", TEMPLATES)
def test_calls_that_real_templates_write_are_read_again(template: str) -> None:
    text = (vocabularies() / "templates" / f"{template}.jinja").read_text(encoding="utf-8")
    found = AnswerForm.of(text, RULES)
    assert (found.tools.name if found.tools else "gpt_oss") == TEMPLATES[template]
    arguments = {"city": "Köln", "days": 3, "where": {"lat": 1.5}}
    call = {"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    properties = {name: SCHEMA["properties"][name] for name in ("city", "days", "where")}
    parameters = {"type": "object", "properties": properties}
    function = {"name": TOOL.name, "description": TOOL.description, "parameters": parameters}
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    rendered = {
        ends: render_answer(
            {
                "template": text,
                "messages": messages,
                "bos_token": "",
                "eos_token": "",
                "add_generation_prompt": ends,
                "tools": [{"type": "function", "function": function}],
                "variables": {"enable_thinking": False},
            }
        )["text"]
        for ends, messages in ((True, chat[:1]), (False, chat))
    }
    prompt = rendered[True]
    while not rendered[False].startswith(prompt):  # some open thoughts where a call has none
        prompt = prompt[:-1]
    answer = rendered[False][len(prompt) :]
    assert joined(read(found, answer, 3))[2] == [("get_weather", arguments)]
