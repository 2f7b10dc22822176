"""In the default precision an answer is the same alone and in a crowd: to the token, whatever it is computed beside.

Alone, a request has its prompt in one step and then a token a step, on one stage. In a crowd its prompt comes in
chunks of any size, beside others, from cached prefixes, again after a preemption, on one to three stages.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from layerline.frames import Sampling
from tests.bench.models import MODELS
from tests.fakes.crowd import Crowd
from tests.fakes.family_models import FAMILIES
from tests.fakes.made_models import write_family
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import Rows, StageChain, StoredModel

DEFAULT = {"precision": "standard", "weights": "stored", "kv_dtype": "float16", "page_tokens": 16}
CONTEXT_TOKENS = 120
ANSWER_TOKENS = 12
REQUESTS = 40
AT_ONCE = 12
PAGES = 14  # a sequence alone takes up to 7
STEM = [3 + (11 * place) % 250 for place in range(90)]


@dataclass(frozen=True)
class Request:
    """A prompt, and how it is answered."""

    prompt: list[int]
    sampling: Sampling
    max_tokens: int  # 0: up to the end of the context

    @property
    def answer_tokens(self) -> int:
        """How long its answer is."""
        return self.max_tokens or CONTEXT_TOKENS - len(self.prompt)


def requests_of(luck: random.Random, vocabulary: int) -> list[Request]:
    """Half of them greedy, half with a seed; half begin alike, half are random tokens."""
    made = []
    for number in range(REQUESTS):
        length = luck.randrange(1, 90)
        prompt = STEM[:length] if number % 2 else [luck.randrange(3, vocabulary) for _ in range(length)]
        prompt += [luck.randrange(3, vocabulary) for _ in range(luck.randrange(1, 4))]
        seeded = Sampling(temperature=1.0, top_p=0.9, seed=number)
        made.append(Request(prompt, seeded if number % 4 < 2 else Sampling(), 0 if length > 70 else ANSWER_TOKENS))
    return made


def alone(chain: StageChain, request: Request) -> list[int]:
    tokens: list[int] = []
    rows = list(request.prompt)
    for _ in range(request.answer_tokens):
        start = len(request.prompt) + len(tokens) - len(rows)
        (drawn,) = chain.step(Rows(token_ids=rows, start=start, sampling=request.sampling))
        tokens.append(drawn.token_id)
        rows = tokens[-1:]
    return tokens


def in_a_crowd(model: StoredModel, requests: list[Request], stages: int, luck: random.Random) -> Crowd:
    chain = model.chain(stages, pages=PAGES, **DEFAULT)
    crowd = Crowd(chain, luck, pages=PAGES, context_tokens=CONTEXT_TOKENS, page_tokens=16)
    asked = 0
    while asked < len(requests) or not crowd.scheduler.idle:
        figures = crowd.scheduler.figures()
        there = figures.sequences_waiting + figures.sequences_prefilling + figures.sequences_decoding
        if asked < len(requests) and there < AT_ONCE and luck.random() < 0.5:
            crowd.ask(asked, requests[asked].prompt, requests[asked].max_tokens, requests[asked].sampling)
            asked += 1
        crowd.move()
    return crowd


def assert_alike(model: StoredModel, stages: int) -> None:
    requests = requests_of(random.Random(stages), model.card.spec.vocabulary)
    lonely = model.chain(1, pages=64, max_rows=128, **DEFAULT)
    wanted = {number: alone(lonely, request) for number, request in enumerate(requests)}
    crowd = in_a_crowd(model, requests, stages, random.Random(7 * stages))
    assert crowd.answers == wanted
    figures = crowd.scheduler.figures()
    assert figures.hit_tokens > 0
    assert figures.preemptions > 0


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_forty_requests_get_what_each_gets_alone(tmp_path: Path, stages: int) -> None:
    assert_alike(StoredModel.written(tmp_path, TinyModel(layers=3)), stages)


@pytest.mark.more
def test_forty_requests_to_experts(tmp_path: Path) -> None:
    assert_alike(StoredModel.at(write_family(tmp_path / "folder", FAMILIES["qwen2_moe"])), 2)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_forty_requests_to_a_real_model(stages: int) -> None:
    assert_alike(StoredModel.at(MODELS["smollm2"].fetch()), stages)
