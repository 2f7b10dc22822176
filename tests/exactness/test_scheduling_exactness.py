"""However the scheduler cuts, mixes, shares, preempts and rebuilds, each answer is that of the request alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fakes.cases import cases
from tests.fakes.crowd import Crowd
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import PAGE_TOKENS, StoredModel, reference_greedy

SLOW = pytest.mark.slow

CONTEXT_TOKENS = 40
REQUESTS = 12
STEM = [3 + (11 * place) % 250 for place in range(30)]
PROMPTS = [STEM[: n + 1] + [5 + (7 * own + 13 * n) % 250 for own in range(n % 5)] for n in range(0, 30, 2)]
MODELS = {"llama": TinyModel(layers=3), "qwen2": TinyModel(family="qwen2", layers=3)}


class Alone:
    """A model and what it says after each of PROMPTS, up to the end of the context."""

    def __init__(self, folder: Path, model: TinyModel) -> None:
        self.model = StoredModel.written(folder, model)
        reference = self.model.reference()
        self.answers = [reference_greedy(reference, prompt, CONTEXT_TOKENS - len(prompt)) for prompt in PROMPTS]


@pytest.fixture(scope="module", params=cases(MODELS, more=["qwen2"]))
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    return Alone(tmp_path_factory.mktemp("model"), MODELS[request.param])


@pytest.mark.parametrize(
    ("pages", "seed"),
    [(12, 1), pytest.param(12, 0, marks=SLOW), pytest.param(24, 0, marks=SLOW), pytest.param(24, 1, marks=SLOW)],
)
def test_a_crowd_with_prefixes_in_common_gets_what_each_gets_alone(alone: Alone, pages: int, seed: int) -> None:
    """One sequence alone takes up to 10 pages."""
    luck = random.Random(1000 * pages + seed)
    crowd = Crowd(alone.model.chain(2 + seed, pages=pages), luck, pages=pages, context_tokens=CONTEXT_TOKENS)
    asked: list[tuple[int, int]] = []
    while len(asked) < REQUESTS or not crowd.scheduler.idle:
        if len(asked) < REQUESTS and luck.random() < 0.3:
            prompt, max_tokens = luck.randrange(len(PROMPTS)), luck.choice([0, 0, 6])
            crowd.ask(len(asked), PROMPTS[prompt], max_tokens)
            asked.append((prompt, max_tokens))
        if luck.random() < 0.005:
            crowd.lose()
        crowd.move()
    wanted = {number: alone.answers[prompt][: most or None] for number, (prompt, most) in enumerate(asked)}
    assert crowd.answers == wanted
    figures = crowd.scheduler.figures()
    assert figures.hit_tokens > 100
    assert figures.preemptions > 0
    assert figures.pages_used == 0


def test_forks_of_one_prompt_and_the_next_turn_get_what_each_gets_alone(alone: Alone) -> None:
    crowd = Crowd(alone.model.chain(2), random.Random(5), pages=64, context_tokens=CONTEXT_TOKENS)
    for sequence in range(4):
        crowd.ask(sequence, PROMPTS[-1], 6)
    crowd.drain()
    answer = alone.answers[-1]
    assert crowd.answers == dict.fromkeys(range(4), answer[:6])
    before = crowd.scheduler.figures()
    crowd.ask(9, PROMPTS[-1] + answer[:6], 3)
    crowd.drain()
    after = crowd.scheduler.figures()
    assert crowd.answers[9] == answer[6:9]
    assert before.hit_tokens == 3 * ((len(PROMPTS[-1]) - 1) // PAGE_TOKENS) * PAGE_TOKENS
    assert after.prompt_rows - before.prompt_rows <= PAGE_TOKENS
