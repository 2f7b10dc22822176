"""Answers with a structure: alone, in a crowd, preempted and rebuilt, they are the plain model's within the masks."""

from __future__ import annotations

import asyncio
import json
import random
from array import array

import jsonschema
import numpy as np
import pytest

from coordinator.scheduling.constraint import Constraint
from coordinator.text.structure.grammars import Grammars
from coordinator.text.token_text import COUNT, TokenText
from layerline.mask_forms import allowed_tokens
from layerline.requests import Structure
from tests.fakes.cases import cases
from tests.fakes.crowd import Crowd
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import StoredModel, reference_logits

CONTEXT_TOKENS, PAGES, EOS = 70, 20, 2
PROMPTS = [[3 + (7 * place + 31 * n) % 250 for place in range(4 + 5 * n)] for n in range(4)]
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["first", "second"]},
        "count": {"type": "integer", "minimum": 10, "maximum": 99},
        "on": {"type": "boolean"},
    },
    "required": ["kind", "count", "on"],
    "additionalProperties": False,
}


def token_text(vocabulary: int) -> TokenText:
    """A byte for each token but the first three, and nothing for what is left."""
    ends, end = array(COUNT), 0
    texts = [b"", b"", b""] + [bytes([byte]) for byte in range(250)]
    texts += [b""] * (vocabulary - len(texts))
    for text in texts:
        end += len(text)
        ends.append(end)
    return TokenText(joined=b"".join(texts), ends=ends, drops_spaces=0, longest_bytes=1, control={EOS: "<end>"})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    return StoredModel.written(tmp_path_factory.mktemp("model"), TinyModel(layers=2))


@pytest.fixture(scope="module")
def vocabulary(model: StoredModel) -> int:
    return int(reference_logits(model.reference(), [3]).shape[-1])


@pytest.fixture(scope="module")
def constraint(vocabulary: int) -> Constraint:
    grammars = Grammars(token_text(vocabulary), [EOS])
    return asyncio.run(grammars.constraint(Structure(kind="json_schema", text=json.dumps(SCHEMA))))


@pytest.fixture(scope="module")
def plain(model: StoredModel, constraint: Constraint, vocabulary: int) -> list[list[int]]:
    return [plain_answer(model, prompt, constraint.fork(), vocabulary) for prompt in PROMPTS]


def plain_answer(model: StoredModel, prompt: list[int], constraint: Constraint, vocabulary: int) -> list[int]:
    """What the whole model answers, the likeliest token that the mask allows each time."""
    reference, tokens = model.reference(), list(prompt)
    while not constraint.is_over:
        logits = reference_logits(reference, tokens)[-1].astype(np.float32)
        mask = constraint.mask()
        assert mask is not None
        logits[~allowed_tokens(mask, vocabulary)] = -np.inf
        tokens.append(int(logits.argmax()))
        if tokens[-1] == EOS:
            break
        tokens += constraint.take(tokens[-1])
    return tokens[len(prompt) :]


def test_the_plain_answers_are_what_the_schema_wants(plain: list[list[int]], vocabulary: int) -> None:
    for answer in plain:
        jsonschema.validate(json.loads(token_text(vocabulary).text_of(answer)), SCHEMA)


@pytest.mark.parametrize("seed", cases(range(3), more=[1, 2]))
def test_a_crowd_that_is_preempted_and_rebuilt_gets_the_same(
    model: StoredModel, plain: list[list[int]], constraint: Constraint, seed: int
) -> None:
    luck = random.Random(seed)
    crowd = Crowd(model.chain(2, pages=PAGES), luck, pages=PAGES, context_tokens=CONTEXT_TOKENS)
    waiting = list(enumerate(PROMPTS))
    while waiting or not crowd.scheduler.idle:
        if waiting and luck.random() < 0.3:
            number, prompt = waiting.pop()
            crowd.ask(number, prompt, 0, stop_ids=frozenset({EOS}), constraint=constraint.fork())
        if luck.random() < 0.01:
            crowd.lose()
        crowd.move()
    assert crowd.answers == dict(enumerate(plain))
