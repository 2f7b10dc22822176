"""Sixty-four answers at once, over real layers in two stages and gRPC, are those that each request gets alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from coordinator.engine import Engine
from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Ended, Token
from coordinator.scheduling.figures import SchedulerFigures
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.stats.recorder import Recorder
from tests.fakes.driven_engine import driven
from tests.fakes.grpc_ring import grpc_ring
from tests.fakes.memory_ring import route
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import PAGE_TOKENS, StoredModel

SLOW = pytest.mark.slow
pytestmark = pytest.mark.more

STREAMS = 64
CONTEXT_TOKENS = 128
STEM = [3 + (11 * place) % 250 for place in range(40)]
DEADLINE_S = 60.0


def requests(luck: random.Random) -> list[tuple[list[int], int]]:
    """Prompts of 1 to 100 tokens, half of them with a common beginning, and how long their answers are to be."""
    prompts = []
    for stream in range(STREAMS):
        own = [3 + luck.randrange(250) for _ in range(luck.randint(1, 60))]
        prompts.append((STEM[: luck.randint(1, 40)] + own if stream % 2 else own, luck.randint(1, 24)))
    return prompts


@pytest.mark.parametrize(("family", "pages"), [pytest.param("llama", 400, marks=SLOW), ("qwen2", 90)])
async def test_each_of_many_mixed_answers_is_that_of_the_request_alone(tmp_path: Path, family: str, pages: int) -> None:
    """Of 400 pages all have some at once; for 90 they have to wait for each other."""
    model = StoredModel.written(tmp_path, TinyModel(family=family, layers=2))
    asked = requests(random.Random(family))
    chain = model.chain(1, max_rows=CONTEXT_TOKENS)
    alone = [chain.greedy(prompt, tokens) for prompt, tokens in asked]
    together, figures = await answered(model, asked, pages)
    assert together == alone
    assert (figures.sequences_waiting, figures.sequences_leaving, figures.pages_used) == (0, 0, 0)
    assert figures.decode_rows > figures.steps  # so they went through together
    assert figures.hit_tokens > 0


async def answered(
    model: StoredModel, asked: Sequence[tuple[list[int], int]], pages: int
) -> tuple[list[list[int]], SchedulerFigures]:
    """The answers to all requests at once, and how things stand after them."""
    capacity = Capacity(
        pages=pages,
        page_tokens=PAGE_TOKENS,
        max_rows=32,
        chunk_tokens=16,
        context_tokens=CONTEXT_TOKENS,
        max_in_flight=2,
        max_waiting=STREAMS,
    )
    scheduler = Scheduler(capacity)
    engine = Engine(scheduler, Recorder(route(2)))
    async with (
        asyncio.timeout(DEADLINE_S),
        grpc_ring(model.chain(2, pages=pages).stages) as ring,
        driven(engine, ring) as broken,
    ):
        answers = await asyncio.gather(*(answer(engine, prompt, tokens) for prompt, tokens in asked))
    assert broken.empty()
    return answers, scheduler.figures()


async def answer(engine: Engine, prompt: Sequence[int], max_tokens: int) -> list[int]:
    tokens: list[int] = []

    def request(number: int) -> SequenceRequest:
        return SequenceRequest(sequence=number, token_ids=tuple(prompt), max_tokens=max_tokens)

    async with engine.answer(request) as events:
        while not isinstance(event := await events.next_event(), Ended):
            assert isinstance(event, Token)
            tokens.append(event.token_id)
    return tokens
