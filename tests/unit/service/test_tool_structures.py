"""Calls to tools that are held to: whatever is drawn within the masks is a call by its schema, in every format."""

from __future__ import annotations

import json
import random
from array import array
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

from coordinator.text.answer_forms.form import NAMES, AnswerForm
from coordinator.text.answer_forms.reader import AnswerReader
from coordinator.text.structure.at_trigger import AtTrigger, Trigger
from coordinator.text.structure.grammars import GrammarConstraint, Grammars
from coordinator.text.structure.tool_grammars import ToolGrammars
from coordinator.text.token_text import COUNT, TokenText
from layerline.chat import ToolRules
from layerline.mask_forms import allowed_tokens
from layerline.requests import Structure
from tests.fakes.tools import TOOLS
from tests.fakes.word_tokens import EOS, TOKENS, WORDS, made


def tool_tokens(markers: list[str]) -> TokenText:
    """All bytes, and these control tokens."""
    texts = [bytes([byte]) for byte in range(256)] + [b""] * (len(markers) + 1)
    ends, end = array(COUNT), 0
    for text in texts:
        end += len(text)
        ends.append(end)
    control = {256: "<end>"} | {257 + index: marker for index, marker in enumerate(markers)}
    return TokenText(joined=b"".join(texts), ends=ends, drops_spaces=0, longest_bytes=1, control=control)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("are_control", [True, False])
def test_calls_that_are_required_are_calls(name: str, are_control: bool) -> None:
    rules = ToolRules(tools=TOOLS[:4], choice="required", format=name)
    form = AnswerForm.of("", rules)
    if form.harmony and not are_control:
        pytest.skip("thoughts of any text end at a control token alone")
    tokens = tool_tokens(list(form.markers) if are_control else [])
    names = {marker.decode(): id_ for id_, marker in tokens.markers(form.markers).items()}
    grammars = Grammars(tokens, [256])
    constraint = made(grammars, Structure(kind="grammar", text=ToolGrammars(form, rules, names.get).required()))
    chance = random.Random(5)
    for _ in range(6):
        reader = AnswerReader(form, rules)
        ids = drawn_ids(constraint.fork(), tokens, chance)
        seen = tokens.markers(form.markers)
        parts = reader.push(b"".join(seen.get(id_) or tokens.of(id_) for id_ in ids).decode()) + reader.flush()
        assert "".join(part.text for part in parts if part.kind == "text").strip() == ""
        calls: dict[int, list[str]] = {}
        for part in parts:
            if part.tool_call is None:
                continue
            call = calls.setdefault(part.tool_call.call, [part.tool_call.name, ""])
            call[1] += part.tool_call.arguments
        assert calls
        for called, arguments in calls.values():
            (tool,) = [tool for tool in rules.tools if tool.name == called]
            jsonschema.validate(json.loads(arguments), json.loads(tool.parameters))


def drawn_ids(constraint: GrammarConstraint, tokens: TokenText, chance: random.Random) -> list[int]:
    """Tokens by chance within the masks, plain letters preferred, up to the end."""
    ids: list[int] = []
    while not constraint.is_over:
        assert len(ids) < 4000, "an answer without an end"
        mask = constraint.mask()
        assert mask is not None
        allowed = [int(id_) for id_ in np.flatnonzero(allowed_tokens(mask, len(tokens.ends)))]
        if 256 in allowed:
            return ids
        plain = [id_ for id_ in allowed if id_ > 256 or chr(id_) in 'ab1"}])<,'] or allowed
        closing = [id_ for id_ in allowed if id_ > 256 or chr(id_) in '"}])</\n']
        ids.append(chance.choice(closing if closing and chance.random() < 0.5 else plain))
        ids += constraint.take(ids[-1])
        assert constraint.failure == ""
    return ids


def test_strict_tools_are_held_to_where_a_call_begins() -> None:
    rules = ToolRules(tools=(replace(TOOLS[0], strict=True),), format="hermes")
    form = AnswerForm.of("", rules)
    grammars = ToolGrammars(form, rules, lambda _: None)
    inner = made(Grammars(TOKENS, [EOS]), Structure(kind="grammar", text=grammars.behind_trigger()))
    constraint = AtTrigger(
        inner, Trigger(text=grammars.trigger.encode(), text_of=TOKENS.of, overrunning=TOKENS.overrunning)
    ).fork()
    for letter in b"I look. <tool_call>":
        assert constraint.mask() is None
        constraint.take(letter)
    mask = constraint.mask()
    assert mask is not None
    assert set(np.flatnonzero(allowed_tokens(mask, len(TOKENS.ends)))) == {ord("\n")}


@pytest.mark.parametrize("name", ["llama3_json", "pythonic", "gpt_oss"])
def test_an_answer_that_need_not_call_is_free_or_a_call_by_the_schema(name: str) -> None:
    rules = ToolRules(tools=(replace(TOOLS[0], strict=True),), format=name)
    form = AnswerForm.of("", rules)
    tokens = tool_tokens(list(form.markers))
    names = {marker.decode(): id_ for id_, marker in tokens.markers(form.markers).items()}
    grammars = ToolGrammars(form, rules, names.get)
    assert grammars.trigger == ""
    constraint = made(Grammars(tokens, [256]), Structure(kind="grammar", text=grammars.not_required()))

    def is_taken(text: str) -> bool:
        """Whether it may be an answer; its control tokens are by their names."""
        answer, ids = constraint.fork(), list[int]()
        while text:
            name = next((name for name in names if text.startswith(name)), "")
            ids += [names[name]] if name else list(text[0].encode())
            text = text[len(name) or 1 :]
        while ids:
            mask = answer.mask()
            if mask is None or not allowed_tokens(mask, len(tokens.ends))[ids[0]]:
                return False
            forced = answer.take(ids.pop(0))
            if tuple(ids[: len(forced)]) != forced:
                return False
            del ids[: len(forced)]
        mask = None if answer.is_over else answer.mask()
        return answer.is_over or (mask is not None and bool(allowed_tokens(mask, len(tokens.ends))[256]))

    says = {"gpt_oss": "<|channel|>final<|message|>Hello {.[}"}.get(name, "Hello {.[}")
    right, wrong = '{"day": 3, "word": "red"}', '{"day": 30, "word": "red"}'
    calls = {
        "llama3_json": '{"name": "get_weather", "parameters": ARGUMENTS}',
        "pythonic": '[get_weather(day=DAY, word="red")]',
        "gpt_oss": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>ARGUMENTS<|call|>",
    }[name]
    assert is_taken(says)
    assert is_taken(calls.replace("ARGUMENTS", right).replace("DAY", "3"))
    assert not is_taken(calls.replace("ARGUMENTS", wrong).replace("DAY", "30"))


def test_an_answer_may_be_calls_or_json() -> None:
    rules = ToolRules(tools=TOOLS[:1], format="hermes")
    grammars = ToolGrammars(AnswerForm.of("", rules), rules, lambda _: None)
    text = grammars.or_json('{"type": "integer", "minimum": 10, "maximum": 12}')
    constraint = made(Grammars(TOKENS, [EOS]), Structure(kind="grammar", text=text))
    mask = constraint.mask()
    assert mask is not None
    allowed = set(np.flatnonzero(allowed_tokens(mask, len(TOKENS.ends))))
    assert allowed == {ord("<"), ord("1"), 256 + WORDS.index("12")}


def test_no_token_runs_past_the_text_that_calls_begin_with() -> None:
    texts = [*(bytes([byte]) for byte in range(256)), b">\n{", b"call>x", b"<tool_call>"]
    ends, end = array(COUNT), 0
    for text in texts:
        end += len(text)
        ends.append(end)
    tokens = TokenText(joined=b"".join(texts), ends=ends, drops_spaces=0, longest_bytes=11)
    inner = made(Grammars(TOKENS, [EOS]), Structure(kind="regex", text="12"))
    trigger = Trigger(text=b"<tool_call>", text_of=tokens.of, overrunning=tokens.overrunning)
    constraint = AtTrigger(inner, trigger)
    forbidden = {}
    for place, byte in enumerate(b"<tool_call"):
        mask = constraint.mask()
        forbidden[place] = set() if mask is None else set(np.flatnonzero(~allowed_tokens(mask, len(texts))))
        constraint.take(byte)
    assert forbidden[0] == set()
    assert forbidden[6] == {257}
    mask = constraint.mask()
    assert mask is not None
    assert set(np.flatnonzero(~allowed_tokens(mask, len(texts)))) == {256}
    constraint.take(ord(">"))
    assert constraint.mask() is not None, "held from the first letter of the call"
