"""However a text is cut into steps, stages and ranks, its scores and its perplexity are those of `transformers`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from coordinator.model_service import ModelService
from layerline.answer import Piece
from layerline.frames import Sampling
from layerline.requests import GenerateRequest
from layerline.scoring import ScoreRequest, WindowScores
from tests.fakes.memory_pipelines import MemoryPipelines, Planned
from tests.fakes.memory_service import service_of
from tests.fakes.model_files import TinyModel
from tests.fakes.ranked_stages import ranked_chain
from tests.fakes.reference_scores import reference_perplexity, reference_scores
from tests.fakes.scores import perplexity_of, scores_of
from tests.fakes.tiny_models import Rows, StageChain, StoredModel, chunks, pages_of, reference_greedy

SLOW = pytest.mark.slow

TEXT = tuple(int(token) for token in np.random.default_rng(13).integers(3, 260, 151))
WINDOW = 40  # of the last one 31 are left
TOLERANCE = 1e-4  # of a log-probability, which is around -6 here


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    folder: Path = tmp_path_factory.mktemp("model")
    return StoredModel.written(folder, TinyModel(layers=4))


@pytest.fixture(scope="module")
def windows(model: StoredModel) -> list[NDArray[np.float64]]:
    """What `transformers` says of each window of TEXT."""
    reference = model.reference()
    return [reference_scores(reference, TEXT[start : start + WINDOW]) for start in range(0, len(TEXT) - 1, WINDOW)]


def scores_in_chunks(chain: StageChain, size: int, sequence: int = 1) -> list[float]:
    """The scores of the first window, prefilled in chunks of that size, with others beside it that draw or do not."""
    scores: list[float] = []
    drawing = Rows(token_ids=TEXT[:3], pages=pages_of([20]), sequence=8, sampling=Sampling())
    silent = Rows(token_ids=TEXT[:3], pages=pages_of([21]), sequence=9, sampling=None)
    for start, ids in chunks(TEXT[: WINDOW - 1], size):
        next_ids = TEXT[start + 1 : start + 1 + len(ids)]
        scored = Rows(token_ids=ids, start=start, pages=pages_of(range(10)), sequence=sequence, next_ids=next_ids)
        result = chain.result(drawing, scored, silent)
        ((of_sequence, position, own),) = [(s.sequence, s.position, s.log_probabilities) for s in result.scores]
        assert (of_sequence, position) == (sequence, start + 1)
        assert [token.sequence for token in result.sampled] == [8]
        scores += own
    return scores


@pytest.mark.parametrize("size", [1, 7, WINDOW])
@pytest.mark.parametrize("stages", [1, 2])
def test_chunks_of_any_size_through_stages(
    model: StoredModel, windows: list[NDArray[np.float64]], stages: int, size: int
) -> None:
    np.testing.assert_allclose(scores_in_chunks(model.chain(stages), size), windows[0], atol=TOLERANCE)


def test_a_vocabulary_in_parts_on_several_ranks(model: StoredModel, windows: list[NDArray[np.float64]]) -> None:
    with ranked_chain(model, [2, 2]) as chain:
        np.testing.assert_allclose(scores_in_chunks(chain, 16), windows[0], atol=TOLERANCE)


def test_only_the_last_rows_are_scored_where_fewer_are_wanted(
    model: StoredModel, windows: list[NDArray[np.float64]]
) -> None:
    rows = Rows(token_ids=TEXT[:20], next_ids=TEXT[17:21])
    (scores,) = model.chain(2).result(rows).scores
    assert scores.position == 17
    np.testing.assert_allclose(scores.log_probabilities, windows[0][16:20], atol=TOLERANCE)


def test_more_rows_than_one_block_of_logits(model: StoredModel) -> None:
    chain = model.chain(1, pages=90, max_rows=100)
    (scores,) = chain.result(Rows(token_ids=TEXT[:90], next_ids=TEXT[1:91])).scores
    expected = reference_scores(model.reference(), TEXT[:91])
    np.testing.assert_allclose(scores.log_probabilities, expected, atol=TOLERANCE)


def check(told: Sequence[WindowScores], windows: list[NDArray[np.float64]]) -> None:
    """Every window once, in order, with its tokens and scores."""
    assert [window.start for window in told] == [1, 41, 81, 121]
    assert {window.text_tokens for window in told} == {len(TEXT)}
    for window, expected in zip(told, windows, strict=True):
        assert window.token_ids == TEXT[window.start : window.start + len(expected)]
        np.testing.assert_allclose(window.log_probabilities, expected, atol=TOLERANCE)


@pytest.mark.parametrize("stages", [1, 2])
async def test_the_perplexity_of_a_text_is_that_of_the_documented_way(
    model: StoredModel, windows: list[NDArray[np.float64]], stages: int
) -> None:
    async with service_of(MemoryPipelines(model, Planned(stages=stages))) as service:
        told, finished = await scores_of(service.score(ScoreRequest(token_ids=TEXT, window_tokens=WINDOW)))
        again, _ = await scores_of(service.score(ScoreRequest(token_ids=TEXT, window_tokens=WINDOW)))
    check(told, windows)
    check(again, windows)
    assert finished.text_tokens == len(TEXT)
    assert len(finished.plan) == stages
    perplexity = perplexity_of(told)
    assert perplexity.tokens == len(TEXT) - 4
    assert perplexity.value == pytest.approx(reference_perplexity(model.reference(), TEXT, WINDOW), rel=1e-5)


async def test_beside_answers_both_are_what_they_are_alone(
    model: StoredModel, windows: list[NDArray[np.float64]]
) -> None:
    """The prompts are the beginnings of windows, whose pages the cache has or will have; memory is short."""
    prompts = [TEXT[:20], TEXT[:33], TEXT[40:60], TEXT[:20]]
    reference = model.reference()

    async def tokens_after(service: ModelService, prompt: tuple[int, ...]) -> list[int]:
        answer = service.generate(GenerateRequest(token_ids=prompt, max_tokens=8))
        return [token async for piece in answer if isinstance(piece, Piece) for token in piece.token_ids]

    async with service_of(MemoryPipelines(model, Planned(stages=2, pages=32))) as service:
        scoring = ScoreRequest(token_ids=TEXT, window_tokens=WINDOW)
        before = await tokens_after(service, prompts[0])
        answering = [asyncio.create_task(tokens_after(service, prompt)) for prompt in prompts]
        told, _ = await scores_of(service.score(scoring))
        answers = [await task for task in answering]
    check(told, windows)
    for prompt, tokens in zip([prompts[0], *prompts], [before, *answers], strict=True):
        expected = reference_greedy(reference, prompt, 8)
        assert tokens == expected[: len(tokens)]
        assert len(tokens) == 8 or tokens[-1] in (0, 2), "or the end of a sequence"


@pytest.mark.parametrize("lost_stage", [0, pytest.param(1, marks=SLOW)])
@pytest.mark.parametrize("lost_at", [pytest.param(1, marks=SLOW), 3, pytest.param(8, marks=SLOW)])
async def test_a_lost_stage_changes_nothing_and_nothing_is_told_twice(
    model: StoredModel, windows: list[NDArray[np.float64]], lost_stage: int, lost_at: int
) -> None:
    pipelines = MemoryPipelines(
        model,
        Planned(stages=2, lost_stage=lost_stage, lost_at=lost_at),
        Planned(stages=1, lost_at=4),
        Planned(stages=3),
    )
    async with service_of(pipelines) as service:
        told, _ = await scores_of(service.score(ScoreRequest(token_ids=TEXT, window_tokens=WINDOW)))
    assert pipelines.opened == 3
    check(told, windows)


async def test_windows_that_must_wait_for_memory(model: StoredModel, windows: list[NDArray[np.float64]]) -> None:
    async with service_of(MemoryPipelines(model, Planned(stages=2, pages=12, context_tokens=WINDOW))) as service:
        told, _ = await scores_of(service.score(ScoreRequest(token_ids=TEXT, window_tokens=WINDOW)))
    check(told, windows)
