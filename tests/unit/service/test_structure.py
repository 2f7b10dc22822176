"""Answers with a structure: whatever is drawn within the masks is one, and what cannot be held to is refused."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest

from coordinator.text.answer_forms import harmony
from coordinator.text.structure.after_thoughts import AfterThoughts, Thoughts
from coordinator.text.structure.grammars import MAX_NESTING, MAX_TEXT_BYTES, GrammarConstraint, Grammars
from layerline.errors import RequestError
from layerline.mask_forms import allowed_tokens
from layerline.requests import Structure
from layerline.token_mask import TokenMask
from tests.fakes.json_schemas import schemas
from tests.fakes.word_tokens import EOS, TOKENS, WORDS, made

MOST_TOKENS = 600
SCHEMAS = schemas()


def drawn(constraint: GrammarConstraint, chance: random.Random) -> str:
    """A text of tokens, each any that may come; what closes something is likelier once the text is long."""
    ids: list[int] = []
    while not constraint.is_over and len(ids) < MOST_TOKENS:
        mask = constraint.mask()
        assert mask is not None
        allowed = np.flatnonzero(allowed_tokens(mask, len(TOKENS.ends)))
        assert len(allowed)
        ending = [int(id_) for id_ in allowed if id_ == EOS or TOKENS.of(int(id_)) in (b'"', b"]", b"}", b'"}', b"}]")]
        token = chance.choice(ending) if ending and chance.random() < len(ids) / 40 else int(chance.choice(allowed))
        if token == EOS:
            return TOKENS.text_of(ids)
        ids.append(token)
        ids += constraint.take(token)
        assert constraint.failure == ""
    assert constraint.is_over, "an answer without an end"
    return TOKENS.text_of(ids)


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(TOKENS, [EOS])


def test_there_are_two_hundred() -> None:
    assert len(SCHEMAS) >= 200
    assert len({json.dumps(schema) for schema in SCHEMAS}) >= 195


@pytest.mark.parametrize("number", range(0, len(SCHEMAS), 10))
def test_whatever_is_drawn_is_what_the_schemas_want(grammars: Grammars, number: int) -> None:
    chance = random.Random(number)
    for schema in SCHEMAS[number : number + 10]:
        constraint = made(grammars, Structure(kind="json_schema", text=json.dumps(schema)))
        checks = jsonschema.FormatChecker(["date", "uuid", "ipv4", "ipv6"])  # its times are Python's, not JSON's
        for _ in range(3):
            answer = drawn(constraint.fork(), chance)
            jsonschema.validate(json.loads(answer), schema, format_checker=checks)


def test_an_object_is_any_object(grammars: Grammars) -> None:
    constraint = made(grammars, Structure(kind="json_object"))
    for seed in range(20):
        assert isinstance(json.loads(drawn(constraint.fork(), random.Random(seed))), dict)


def test_expressions_and_grammars(grammars: Grammars) -> None:
    expression = made(grammars, Structure(kind="regex", text="(ab|é){2,3}!"))
    assert {drawn(expression.fork(), random.Random(seed)) for seed in range(60)} > {"abab!", "ééé!"}
    grammar = made(grammars, Structure(kind="grammar", text='start: "the " thing+\nthing: "ab" | "12" "."'))
    assert drawn(grammar.fork(), random.Random(1)).startswith("the ")


def test_what_has_no_choice_is_not_drawn(grammars: Grammars) -> None:
    text = json.dumps({"type": "object", "properties": {"name": {"const": "the"}}, "required": ["name"]})
    constraint = made(grammars, Structure(kind="json_schema", text=text))
    (first,) = np.flatnonzero(allowed_tokens(constraint.mask(), len(TOKENS.ends)))[:1]  # type: ignore[arg-type]
    forced = constraint.take(int(first))
    assert len(forced) >= 2
    assert '{"name": "the"'.startswith(TOKENS.text_of([int(first), *forced]))


def test_a_fork_goes_its_own_way(grammars: Grammars) -> None:
    constraint = made(grammars, Structure(kind="regex", text="[ab]{4}"))
    other = constraint.fork()
    constraint.take(ord("a"))
    for _ in range(4):
        other.take(ord("b"))
    assert (other.is_over, constraint.is_over) == (True, False)


@pytest.mark.parametrize(
    ("structure", "word"),
    [
        (Structure(kind="json_schema", text="{"), "JSON schema"),
        (Structure(kind="json_schema", text="[]"), "no object"),
        (Structure(kind="json_schema", text='{"type": "array", "contains": {}}'), "contains"),
        (Structure(kind="json_schema", text='{"type": "array", "uniqueItems": true}'), "uniqueItems"),
        (Structure(kind="json_schema", text='{"$ref": "#/nowhere"}'), "nowhere"),
        (Structure(kind="json_schema", text='{"$ref": "https://elsewhere.example/schema"}'), "elsewhere"),
        (Structure(kind="json_schema", text='{"type": "integer", "minimum": 3, "maximum": 2}'), "JSON schema"),
        (Structure(kind="json_schema", text='{"a":' * (MAX_NESTING + 1) + "1" + "}" * (MAX_NESTING + 1)), "nested"),
        (Structure(kind="json_schema", text='{"description": "' + "a" * MAX_TEXT_BYTES + '"}'), "KiB"),
        (Structure(kind="regex", text="(a"), "regular expression"),
        (Structure(kind="grammar", text="start: nothing"), "grammar"),
    ],
)
def test_what_cannot_be_held_to_is_refused(grammars: Grammars, structure: Structure, word: str) -> None:
    with pytest.raises(RequestError, match=word):
        made(grammars, structure)


def test_thoughts_are_free() -> None:
    end = re.compile(b"ab>")
    thoughts = Thoughts(
        begin_id=ord("<"),
        end=end,
        stop_ids=(EOS,),
        text_of=TOKENS.of,
        has_begun=False,
        vocabulary=len(TOKENS.ends),
    )
    grammar = made(Grammars(TOKENS, [EOS]), Structure(kind="regex", text="12"))
    for thinks in (True, False):
        constraint = AfterThoughts(grammar.fork(), thoughts)
        mask = constraint.mask()
        assert mask is not None
        allowed = set(np.flatnonzero(allowed_tokens(mask, len(TOKENS.ends))))
        assert allowed == {ord("<"), 256 + WORDS.index("12")}
        if thinks:
            for token in [ord("<"), 256 + WORDS.index("the"), EOS - 2, ord(">")]:
                assert constraint.take(token) == ()
                assert constraint.mask() == TokenMask.forbidding([EOS]) or token == ord(">")
        mask = constraint.mask()
        assert mask is not None
        constraint.take(256 + WORDS.index("12"))
        assert constraint.is_over
    opened: dict[str, Any] = {"begin_id": None, "has_begun": True}
    constraint = AfterThoughts(grammar.fork(), replace(thoughts, **opened))
    assert constraint.mask() == TokenMask.forbidding([EOS]), "an answer that has not come does not end"


@pytest.mark.parametrize(
    ("text", "is_final"),
    [
        ("<|channel|>final<|message|>", True),
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>", True),
        ("<|channel|>final <|constrain|>json<|message|>", True),
        ("<|channel|>analysis<|message|>final", False),
        ("<|channel|>commentary to=functions.final <|constrain|>json<|message|>", False),
        ("<|channel|>final", False),
    ],
)
def test_the_channel_of_an_answer_is_told_by_its_header(text: str, is_final: bool) -> None:
    assert bool(harmony.FINAL.search(text.encode())) == is_final
