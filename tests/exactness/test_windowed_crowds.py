"""Sequences that keep only their window say what `transformers` says, however they are cut, shared and preempted."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.cases import cases
from tests.fakes.crowd import Crowd
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import PAGE_TOKENS, StoredModel, reference_greedy

SLOW = pytest.mark.slow

WINDOW = 10
CONTEXT_TOKENS = 80
RING = 14  # pages of a sequence, with the most rows that a step of a crowd may have; the whole context would take 20
REQUESTS = 10
STEM = [3 + (11 * place) % 250 for place in range(60)]
PROMPTS = [STEM[:n] + [5 + (7 * own + 13 * n) % 250 for own in range(1 + n % 4)] for n in (0, 18, 33, 47, 60)]
MODELS: Mapping[str, Mapping[str, object]] = {
    "mistral": {"sliding_window": WINDOW},
    "qwen2": {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 0},
}


class Alone:
    """A model with a window in every layer, and what it says after each of PROMPTS up to the end of the context."""

    def __init__(self, folder: Path, family: str) -> None:
        self.model = StoredModel.written(folder, TinyModel(family=family, layers=2), MODELS[family])
        reference = self.model.reference()
        self.answers = [reference_greedy(reference, prompt, CONTEXT_TOKENS - len(prompt)) for prompt in PROMPTS]

    def crowd(self, stages: int, luck: random.Random, pages: int) -> Crowd:
        chain = self.model.chain(stages, pages=pages)
        reach_tokens = self.model.card.spec.reach_tokens
        assert reach_tokens == WINDOW
        return Crowd(chain, luck, pages=pages, context_tokens=CONTEXT_TOKENS, reach_tokens=reach_tokens)


@pytest.fixture(scope="module", params=cases(MODELS, more=["qwen2"]))
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    return Alone(tmp_path_factory.mktemp("model"), request.param)


@pytest.mark.parametrize(("pages", "seed"), [(RING, 4), pytest.param(2 * RING, 0, marks=SLOW)])
def test_a_crowd_with_prefixes_in_common_gets_what_each_gets_alone(alone: Alone, pages: int, seed: int) -> None:
    luck = random.Random(100 * pages + seed)
    crowd = alone.crowd(2, luck, pages)
    asked: list[tuple[int, int]] = []
    cancelled: set[int] = set()
    while len(asked) < REQUESTS or not crowd.scheduler.idle:
        if len(asked) < REQUESTS and luck.random() < 0.3:
            prompt, max_tokens = luck.randrange(len(PROMPTS)), luck.choice([0, 0, 6, 20])
            crowd.ask(len(asked), PROMPTS[prompt], max_tokens)
            asked.append((prompt, max_tokens))
        if asked and luck.random() < 0.01:
            number = luck.randrange(len(asked))
            cancelled.add(number)
            crowd.cancel(number)
        if luck.random() < 0.003:
            crowd.lose()
        crowd.move()
        crowd.scheduler.check()  # which is also that no sequence has more pages than the ring
    for number, (prompt, max_tokens) in enumerate(asked):
        wanted = alone.answers[prompt][: max_tokens or None]
        assert crowd.answers[number] == (wanted[: len(crowd.answers[number])] if number in cancelled else wanted)
    figures = crowd.scheduler.figures()
    assert figures.hit_tokens > 50
    assert figures.preemptions > 0
    assert figures.pages_used == 0


def test_a_context_of_many_windows_stays_in_its_ring(alone: Alone) -> None:
    crowd = alone.crowd(2, random.Random(2), RING)
    ring = crowd.capacity.sequence_pages
    crowd.ask(0, PROMPTS[1], 0)
    most_used = 0
    while not crowd.scheduler.idle:
        crowd.move()
        most_used = max(most_used, crowd.scheduler.figures().pages_used)
    assert crowd.answers[0] == alone.answers[1]
    assert most_used <= ring < CONTEXT_TOKENS / PAGE_TOKENS


def test_the_next_turn_goes_on_from_the_window_that_was_kept(alone: Alone) -> None:
    crowd = alone.crowd(2, random.Random(4), RING)
    answer = alone.answers[3]
    crowd.ask(0, PROMPTS[3], 20)
    crowd.drain()
    before = crowd.scheduler.figures()
    crowd.ask(1, PROMPTS[3] + answer[:20], 4)
    crowd.drain()
    assert crowd.answers[1] == answer[20:24]
    assert crowd.scheduler.figures().prompt_rows - before.prompt_rows <= PAGE_TOKENS
