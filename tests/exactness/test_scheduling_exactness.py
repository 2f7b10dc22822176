"""However the scheduler cuts, mixes, shares, preempts and rebuilds, each answer is that of the request alone.

Real layers, driven step by step in one thread: stages compute when a step is sent, results are taken whenever chance
says so. Times are made up, so that the sizes of chunks are the same on every machine and differ from seed to seed.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Event, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from layerline.frames import Frame, StageTiming, StepResult
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import PAGE_TOKENS, StageChain, StoredModel, reference_greedy

CONTEXT_TOKENS = 48
REQUESTS = 16
STEM = [3 + (11 * place) % 250 for place in range(30)]
PROMPTS = [STEM[: n + 1] + [5 + (7 * own + 13 * n) % 250 for own in range(n % 5)] for n in range(0, 30, 2)]
MODELS = {"llama": TinyModel(layers=4), "qwen2": TinyModel(family="qwen2", layers=4)}


class Alone:
    """A model and what it says after each of PROMPTS, up to the end of the context."""

    def __init__(self, folder: Path, model: TinyModel) -> None:
        self.model = StoredModel.written(folder, model)
        reference = self.model.reference()
        self.answers = [reference_greedy(reference, prompt, CONTEXT_TOKENS - len(prompt)) for prompt in PROMPTS]


@pytest.fixture(scope="module", params=MODELS)
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    return Alone(tmp_path_factory.mktemp("model"), MODELS[request.param])


class Crowd:
    """A scheduler over real stages, and chance."""

    def __init__(self, chain: StageChain, luck: random.Random, *, pages: int) -> None:
        self._luck = luck
        self._chain = chain
        self._results: deque[StepResult] = deque()
        self.answers: dict[int, list[int]] = {}
        self.scheduler = Scheduler(
            Capacity(
                pages=pages,
                page_tokens=PAGE_TOKENS,
                max_rows=luck.choice([7, 16, 40]),
                chunk_tokens=luck.choice([3, 8, 40]),
                context_tokens=CONTEXT_TOKENS,
                max_in_flight=len(chain.stages),
                max_waiting=64,
                open_ended_tokens=4,
            )
        )

    def ask(self, sequence: int, prompt: list[int], max_tokens: int) -> None:
        self.answers[sequence] = []
        self.scheduler.add(SequenceRequest(sequence=sequence, token_ids=tuple(prompt), max_tokens=max_tokens))

    def move(self) -> None:
        """Sends a step or takes a result, whatever chance prefers and is possible."""
        step = self.scheduler.next_step() if self._luck.random() < 0.6 or not self._results else None
        if step is not None:
            self._results.append(self._computed(step))
        elif self._results:
            self._tell(self.scheduler.complete(self._results.popleft()))

    def lose(self) -> None:
        self.scheduler.lose()
        self._results.clear()

    def _computed(self, step: Step) -> StepResult:
        product: Frame | StepResult = step.frame(epoch=1)
        for index, stage in enumerate(self._chain.stages):
            assert isinstance(product, Frame)
            product = stage.run(product, index)
        assert isinstance(product, StepResult)
        times_us = [self._luck.randrange(1, 3000) for _ in self._chain.stages]
        timings = [StageTiming(stage_index=index, compute_us=time) for index, time in enumerate(times_us)]
        return replace(product, timings=tuple(timings))

    def _tell(self, events: tuple[Event, ...]) -> None:
        for event in events:
            if isinstance(event, Token):
                self.answers[event.sequence].append(event.token_id)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("pages", [14, 24])
def test_a_crowd_with_prefixes_in_common_gets_what_each_gets_alone(alone: Alone, pages: int, seed: int) -> None:
    """One sequence alone takes up to 12 pages."""
    luck = random.Random(1000 * pages + seed)
    crowd = Crowd(alone.model.chain(2 + seed, pages=pages), luck, pages=pages)
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
    crowd = Crowd(alone.model.chain(2), random.Random(5), pages=64)
    for sequence in range(4):
        crowd.ask(sequence, PROMPTS[-1], 6)
    while not crowd.scheduler.idle:
        crowd.move()
    answer = alone.answers[-1]
    assert crowd.answers == dict.fromkeys(range(4), answer[:6])
    before = crowd.scheduler.figures()
    crowd.ask(9, PROMPTS[-1] + answer[:6], 3)
    while not crowd.scheduler.idle:
        crowd.move()
    after = crowd.scheduler.figures()
    assert crowd.answers[9] == answer[6:9]
    assert before.hit_tokens == 3 * ((len(PROMPTS[-1]) - 1) // PAGE_TOKENS) * PAGE_TOKENS
    assert after.prompt_rows - before.prompt_rows <= PAGE_TOKENS
