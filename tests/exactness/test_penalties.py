"""Biases, and penalties of the answer so far: alone, in a crowd, preempted and rebuilt, it is the plain model's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from layerline.frames import Sampling
from tests.fakes.cases import cases
from tests.fakes.crowd import Crowd
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import StoredModel, reference_logits

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONTEXT_TOKENS = 36
PAGES = 12
PROMPTS = [[3 + (7 * place + 31 * n) % 250 for place in range(4 + 7 * n)] for n in range(3)]
WAYS = [
    Sampling(presence_penalty=2.0),
    Sampling(frequency_penalty=0.3),
    Sampling(presence_penalty=-0.1, frequency_penalty=-0.2),
    Sampling(repetition_penalty=1.1, presence_penalty=0.1, frequency_penalty=0.5),
    Sampling(repetition_penalty=1.1, bias_ids=tuple(range(0, 260, 2)), biases=(-100.0,) * 130),
]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request for an answer to the end of the context."""

    prompt: Sequence[int]
    sampling: Sampling


REQUESTS = [Asked(prompt=prompt, sampling=sampling) for prompt in PROMPTS for sampling in WAYS]


def plain_answer(reference: PreTrainedModel, asked: Asked) -> list[int]:
    """What the whole model answers, the penalties being computed number by number in float32."""
    tokens = list(asked.prompt)
    while len(tokens) < CONTEXT_TOKENS:
        logits = reference_logits(reference, tokens)[-1].astype(np.float32)
        for token, bias in zip(asked.sampling.bias_ids, asked.sampling.biases, strict=True):
            logits[token] += np.float32(bias)
        for token in set(tokens) if asked.sampling.repetition_penalty != 1.0 else ():
            penalty = np.float32(asked.sampling.repetition_penalty)
            logits[token] = logits[token] * penalty if logits[token] < 0 else logits[token] / penalty
        answer = tokens[len(asked.prompt) :]
        for token in set(answer):
            logits[token] -= np.float32(asked.sampling.presence_penalty)
            logits[token] -= np.float32(asked.sampling.frequency_penalty) * np.float32(answer.count(token))
        tokens.append(int(logits.argmax()))
    return tokens[len(asked.prompt) :]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    return StoredModel.written(tmp_path_factory.mktemp("model"), TinyModel(layers=2))


@pytest.fixture(scope="module")
def plain(model: StoredModel) -> list[list[int]]:
    reference = model.reference()
    return [plain_answer(reference, asked) for asked in REQUESTS]


def test_each_alone_gets_what_the_plain_model_answers(model: StoredModel, plain: list[list[int]]) -> None:
    for asked, wanted in zip(REQUESTS, plain, strict=True):
        crowd = Crowd(model.chain(2, pages=PAGES), random.Random(1), pages=PAGES, context_tokens=CONTEXT_TOKENS)
        crowd.ask(1, list(asked.prompt), 0, asked.sampling)
        while not crowd.scheduler.idle:
            crowd.move()
        assert crowd.answers[1] == wanted


def test_the_penalties_make_a_difference(plain: list[list[int]]) -> None:
    of_prompts = [plain[first : first + len(WAYS)] for first in range(0, len(plain), len(WAYS))]
    assert any(len(set(map(tuple, answers))) == len(WAYS) for answers in of_prompts)


@pytest.mark.parametrize("seed", cases(range(2), more=[1]))
def test_a_crowd_that_is_preempted_and_rebuilt_gets_the_same(
    model: StoredModel, plain: list[list[int]], seed: int
) -> None:
    luck = random.Random(seed)
    crowd = Crowd(model.chain(2, pages=PAGES), luck, pages=PAGES, context_tokens=CONTEXT_TOKENS)
    waiting = list(enumerate(REQUESTS))
    while waiting or not crowd.scheduler.idle:
        if waiting and luck.random() < 0.3:
            number, asked = waiting.pop()
            crowd.ask(number, list(asked.prompt), 0, asked.sampling)
        if luck.random() < 0.01:
            crowd.lose()
        crowd.move()
    assert crowd.answers == dict(enumerate(plain))
    assert crowd.scheduler.figures().preemptions > 0
