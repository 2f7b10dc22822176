"""A whole cluster in one process: engine, scheduler and real layers, over both kinds of link.

Many requests at once, batched and chunked as the scheduler likes, get the tokens that `transformers` gives each alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.engine import Engine
from coordinator.ring import Ring
from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Ended, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.stats.recorder import Recorder
from layerline.frames import Sampling
from node.worker.stage_compute import RankCompute
from tests.fakes.cases import cases
from tests.fakes.driven_engine import driven
from tests.fakes.grpc_ring import grpc_ring
from tests.fakes.memory_ring import memory_ring, route
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import PAGE_TOKENS, StoredModel, reference_greedy

DEADLINE_S = 60.0
PROMPTS = [[3 + (7 * n + 11 * i) % 250 for i in range(2 + 9 * n)] for n in range(6)]
MakeRing = Callable[[Sequence[RankCompute]], AbstractAsyncContextManager[Ring]]
LINKS: dict[str, MakeRing] = {"memory": memory_ring, "grpc": grpc_ring}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    folder: Path = tmp_path_factory.mktemp("model")
    return StoredModel.written(folder, TinyModel(layers=4))


@pytest.fixture(scope="module")
def expected(model: StoredModel) -> list[list[int]]:
    reference = model.reference()
    return [reference_greedy(reference, prompt, 12) for prompt in PROMPTS]


async def answers(
    model: StoredModel, make_ring: MakeRing, stages: int, sampling: Sampling, *, at_once: bool
) -> list[list[int]]:
    """The tokens after each of PROMPTS."""
    async with engine_over(model, make_ring, stages) as engine:
        asking = [ask(engine, prompt, sampling) for prompt in PROMPTS]
        answered = await asyncio.gather(*asking) if at_once else [await one for one in asking]
    return [tokens for (tokens,) in answered]


@asynccontextmanager
async def engine_over(model: StoredModel, make_ring: MakeRing, stages: int) -> AsyncIterator[Engine]:
    capacity = Capacity(
        pages=64,
        page_tokens=PAGE_TOKENS,
        max_rows=16,
        chunk_tokens=8,
        context_tokens=128,
        max_in_flight=stages,
        max_waiting=64,
    )
    engine = Engine(Scheduler(capacity), Recorder(route(stages)))
    async with (
        asyncio.timeout(DEADLINE_S),
        make_ring(model.chain(stages).stages) as ring,
        driven(engine, ring) as broken,
    ):
        yield engine
    assert broken.empty()


async def ask(engine: Engine, prompt: Sequence[int], sampling: Sampling, forks: int = 1) -> list[list[int]]:
    """The tokens of each answer to the prompt."""

    def request(number: int) -> SequenceRequest:
        return SequenceRequest(sequence=number, token_ids=tuple(prompt), max_tokens=12, sampling=sampling)

    async with engine.answer(request, forks=forks) as answer:
        tokens: dict[int, list[int]] = {one.sequence: [] for one in answer.requests}
        left = forks
        while left:
            event = await answer.next_event()
            if isinstance(event, Token):
                tokens[event.sequence].append(event.token_id)
            left -= isinstance(event, Ended)
    return list(tokens.values())


@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize("stages", cases([1, 2, 3], more=[1]))
async def test_a_crowd_gets_what_each_gets_alone(
    model: StoredModel, expected: list[list[int]], links: str, stages: int
) -> None:
    assert await answers(model, LINKS[links], stages, Sampling(), at_once=True) == expected


async def test_drawn_tokens_do_not_depend_on_company_or_split(model: StoredModel) -> None:
    sampling = Sampling(temperature=1.3, top_k=50, top_p=0.95, min_p=0.01, repetition_penalty=1.1, seed=7)
    alone = await answers(model, memory_ring, 1, sampling, at_once=False)
    assert await answers(model, memory_ring, 3, sampling, at_once=True) == alone
    other_seed = Sampling(temperature=1.3, top_k=50, top_p=0.95, min_p=0.01, repetition_penalty=1.1, seed=8)
    assert await answers(model, memory_ring, 1, other_seed, at_once=False) != alone


@pytest.mark.parametrize("stages", [1, 2])
async def test_greedy_answers_to_one_prompt_are_equal(
    model: StoredModel, expected: list[list[int]], stages: int
) -> None:
    async with engine_over(model, memory_ring, stages) as engine:
        assert await ask(engine, PROMPTS[5], Sampling(), forks=3) == [expected[5]] * 3


@pytest.mark.parametrize("stages", [1, 2])
async def test_every_answer_to_one_prompt_is_that_of_a_request_with_its_seed(model: StoredModel, stages: int) -> None:
    sampling = Sampling(temperature=1.3, top_p=0.95, repetition_penalty=1.1, seed=2**64 - 2)
    async with engine_over(model, memory_ring, 1) as engine:
        alone = [(await ask(engine, PROMPTS[5], replace(sampling, seed=seed)))[0] for seed in (2**64 - 2, 2**64 - 1, 0)]
    async with engine_over(model, memory_ring, stages) as engine:
        assert await ask(engine, PROMPTS[5], sampling, forks=3) == alone
    assert len(set(map(tuple, alone))) == 3
