"""The same tokens as without a loss, in float32, whenever and however often the pipeline is lost.

Real layers over links in memory, in a model service; greedy answers are also those of `transformers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from coordinator.engine import Engine
from coordinator.model_service import ModelService
from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Ended, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.stats.recorder import Recorder
from layerline.answer import Completion, Finished, Piece
from layerline.errors import NodeLostError, PlanDoesNotFitError, StageFailedError
from layerline.frames import Sampling
from layerline.requests import GenerateRequest
from layerline.sampling import SamplingOptions
from tests.fakes.memory_pipelines import LosableStage, MemoryPipelines, Planned
from tests.fakes.memory_ring import memory_ring, route
from tests.fakes.memory_service import service_of
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import PAGE_TOKENS, StoredModel, reference_greedy

SLOW = pytest.mark.slow

DEADLINE_S = 60.0
TOKENS = 14
PROMPTS = [tuple(3 + (7 * n + 11 * i) % 250 for i in range(2 + 9 * n)) for n in range(6)]
SAMPLING = SamplingOptions(
    temperature=1.3, top_k=50, top_p=0.95, min_p=0.01, repetition_penalty=1.1, frequency_penalty=0.2
)
DRAWN = {"sampling": SAMPLING}
OPTIONS: dict[str, dict[str, Any]] = {"greedy": {}, "drawn": DRAWN}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    folder: Path = tmp_path_factory.mktemp("model")
    return StoredModel.written(folder, TinyModel(layers=3))


@pytest.fixture(scope="module")
def expected(model: StoredModel) -> dict[str, list[Completion]]:
    """The answers of one pipeline of one stage that is never lost."""
    return {kind: asyncio.run(answers(MemoryPipelines(model, Planned(stages=1)), **OPTIONS[kind])) for kind in OPTIONS}


async def answers(pipelines: MemoryPipelines, n: int = 1, **options: Any) -> list[Completion]:
    """The answers to all of PROMPTS, asked for at once."""
    async with service_of(pipelines) as service:
        return await asyncio.gather(
            *(
                ask(service, prompt, seed=index, max_tokens=TOKENS, n=n, **options)
                for index, prompt in enumerate(PROMPTS)
            )
        )


async def ask(service: ModelService, prompt: Sequence[int], **options: Any) -> Completion:
    pieces: list[Piece] = []
    finished: list[Finished] = []
    async with aclosing(service.generate(GenerateRequest(token_ids=tuple(prompt), **options))) as items:
        async for item in items:
            if isinstance(item, Piece):
                pieces.append(item)
            elif isinstance(item, Finished):
                finished.append(item)
    return Completion.joined(pieces, *sorted(finished, key=lambda one: one.index))


def told(completions: Sequence[Completion]) -> list[tuple[object, ...]]:
    """All of the answers but how long they took and where."""
    return [
        (one.text, one.token_ids, one.finished.finish_reason, one.finished.usage, one.finished.seed)
        for completion in completions
        for one in (completion, *completion.others)
    ]


def test_answers_without_a_loss_are_those_of_transformers(
    model: StoredModel, expected: dict[str, list[Completion]]
) -> None:
    reference = model.reference()
    for prompt, completion in zip(PROMPTS, expected["greedy"], strict=True):
        whole = reference_greedy(reference, prompt, TOKENS)
        assert list(completion.token_ids) == whole[: len(completion.token_ids)]
        assert len(completion.token_ids) == TOKENS or completion.token_ids[-1] == 2


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("lost_at", [pytest.param(1, marks=SLOW), 4, pytest.param(14, marks=SLOW)])
@pytest.mark.parametrize(
    ("stages", "lost_stage"), [pytest.param(2, 0, marks=SLOW), pytest.param(2, 1, marks=pytest.mark.more), (3, 1)]
)
async def test_a_loss_at_any_step_changes_nothing(
    model: StoredModel, expected: dict[str, list[Completion]], stages: int, lost_stage: int, lost_at: int, kind: str
) -> None:
    """The first frames are of prompts, the later ones of answers."""
    first = Planned(stages=stages, lost_stage=lost_stage, lost_at=lost_at)
    pipelines = MemoryPipelines(model, first, Planned(stages=stages))
    completions = await answers(pipelines, **OPTIONS[kind])
    assert pipelines.opened == 2
    assert told(completions) == told(expected[kind])
    assert {completion.finished.losses for completion in completions} <= {0, 1}
    assert any(completion.finished.losses for completion in completions)


@pytest.mark.parametrize("kind", OPTIONS)
async def test_one_loss_after_the_other_over_plans_of_any_shape(
    model: StoredModel, expected: dict[str, list[Completion]], kind: str
) -> None:
    gone = NodeLostError("The connection to node n1 is gone.", node="n1")
    pipelines = MemoryPipelines(
        model,
        Planned(stages=3, lost_stage=2, lost_at=1),
        Planned(fails=gone),
        Planned(stages=1, lost_at=7, pages=40),
        Planned(fails=gone),
        Planned(fails=gone),
        Planned(stages=3, pages=32),
    )
    assert told(await answers(pipelines, **OPTIONS[kind])) == told(expected[kind])
    assert pipelines.opened == 3


async def test_forks_outlive_a_loss_too(model: StoredModel) -> None:
    undisturbed = await answers(MemoryPipelines(model, Planned(stages=1)), n=3, **DRAWN)
    pipelines = MemoryPipelines(model, Planned(stages=3, lost_stage=1, lost_at=9), Planned(stages=2))
    assert told(await answers(pipelines, n=3, **DRAWN)) == told(undisturbed)
    assert pipelines.opened == 2


@pytest.mark.more
@pytest.mark.parametrize("lost_at", [pytest.param(3, marks=SLOW), pytest.param(9, marks=SLOW), 15])
async def test_stop_strings_and_half_characters_outlive_a_loss(
    model: StoredModel, expected: dict[str, list[Completion]], lost_at: int
) -> None:
    """Each answer is stopped at the last three characters it would have; half of them may be held back at the loss."""
    for prompt, whole in zip(PROMPTS, expected["drawn"], strict=True):
        options = {**DRAWN, "seed": whole.finished.seed, "max_tokens": TOKENS, "stop": (whole.text[-3:],)}
        async with service_of(MemoryPipelines(model, Planned(stages=1))) as service:
            undisturbed = await ask(service, prompt, **options)
        pipelines = MemoryPipelines(model, Planned(stages=2, lost_stage=1, lost_at=lost_at), Planned(stages=2))
        async with service_of(pipelines) as service:
            assert told([await ask(service, prompt, **options)]) == told([undisturbed])
        assert pipelines.opened == 2 or undisturbed.finished.usage.completion_tokens < lost_at


async def test_answers_that_had_to_wait_for_memory_outlive_a_loss(
    model: StoredModel, expected: dict[str, list[Completion]]
) -> None:
    """There are pages for two of the longer answers; the others are queued when the pipeline is lost."""
    pipelines = MemoryPipelines(
        model, Planned(stages=2, lost_at=8, pages=32), Planned(stages=2, lost_at=8, pages=32), Planned(pages=32)
    )
    assert told(await answers(pipelines)) == told(expected["greedy"])
    assert pipelines.opened == 3


@pytest.mark.more
async def test_preempted_answers_outlive_a_loss(model: StoredModel) -> None:
    """Answers without a limit that take memory from each other, in an engine driven by hand."""
    capacity = Capacity(
        pages=36,
        page_tokens=PAGE_TOKENS,
        max_rows=16,
        chunk_tokens=8,
        context_tokens=100,
        max_in_flight=2,
        max_waiting=16,
        open_ended_tokens=4,
    )
    undisturbed, _ = await open_ended(model, capacity, lost_at=())
    tokens, preemptions = await open_ended(model, capacity, lost_at=(30, 45, 60))
    assert preemptions > 0
    assert tokens == undisturbed


async def open_ended(model: StoredModel, capacity: Capacity, lost_at: Sequence[int]) -> tuple[list[list[int]], int]:
    """The whole answers to short prompts, over pipelines lost at these frames and one more; and the preemptions."""
    scheduler = Scheduler(capacity)
    engine = Engine(scheduler, Recorder(route(2)))
    asking = [asyncio.create_task(drained(engine, prompt)) for prompt in PROMPTS[:4]]
    async with asyncio.timeout(DEADLINE_S):
        for epoch, frames in enumerate((*lost_at, 0), 1):
            stages = [
                LosableStage(stage, f"n{index}", frames * (index == 1))
                for index, stage in enumerate(model.chain(2, pages=capacity.pages).stages)
            ]
            async with memory_ring(stages, epoch=epoch) as ring:
                driving = asyncio.create_task(engine.drive(ring))
                if frames:
                    with pytest.raises(StageFailedError):
                        await driving
                    engine.lose()
                    engine.renew(capacity, route(2))
                else:
                    answered = await asyncio.gather(*asking)
                    driving.cancel()
                    await asyncio.wait([driving])
    return answered, scheduler.figures().preemptions


async def drained(engine: Engine, prompt: Sequence[int]) -> list[int]:
    tokens = []
    sampling = Sampling(temperature=0.8, seed=len(prompt))
    async with engine.answer(
        lambda number: SequenceRequest(sequence=number, token_ids=tuple(prompt), sampling=sampling)
    ) as answer:
        while not isinstance(event := await answer.next_event(), Ended):
            assert isinstance(event, Token)
            tokens.append(event.token_id)
    return tokens


async def test_an_answer_that_the_next_plan_has_no_context_for_ends_and_the_others_go_on(
    model: StoredModel, expected: dict[str, list[Completion]]
) -> None:
    pipelines = MemoryPipelines(model, Planned(stages=2, lost_at=6), Planned(stages=2, context_tokens=60))
    async with service_of(pipelines) as service:
        long, short, open_ended = await asyncio.gather(
            ask(service, PROMPTS[1], max_tokens=90, seed=1),
            ask(service, PROMPTS[2], max_tokens=TOKENS, seed=2),
            ask(service, PROMPTS[3], seed=3),
            return_exceptions=True,
        )
    assert isinstance(long, PlanDoesNotFitError)
    assert "needs a context of 101 tokens; the nodes there are now hold 60" in long.message
    assert isinstance(short, Completion)
    assert told([short]) == told(expected["greedy"][2:3])
    assert isinstance(open_ended, Completion)
    ids = expected["greedy"][3].token_ids
    assert open_ended.token_ids[: len(ids)] == ids
    assert len(PROMPTS[3]) + len(open_ended.token_ids) <= 60
