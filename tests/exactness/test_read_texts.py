"""What is told of a prompt, and the vectors of texts, through a model in service: those of `transformers`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from layerline.answer import Finished, Piece, PromptLikelihoods
from layerline.embedding import Embedding, EmbeddingFinished, EmbedInput, EmbedRequest
from layerline.requests import GenerateRequest
from tests.fakes.memory_pipelines import MemoryPipelines, Planned
from tests.fakes.memory_service import service_of
from tests.fakes.model_files import TinyModel
from tests.fakes.reference_scores import reference_scores
from tests.fakes.tiny_models import StoredModel, reference_greedy

RANDOM = np.random.default_rng(17)
TEXTS = [tuple(int(token) for token in RANDOM.integers(3, 260, count)) for count in (1, 7, 60, 33, 90)]
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    folder: Path = tmp_path_factory.mktemp("model")
    return StoredModel.written(folder, TinyModel(layers=4))


@pytest.fixture(scope="module")
def states(model: StoredModel) -> list[NDArray[np.float32]]:
    reference = model.reference()
    with torch.inference_mode():
        found = [reference(torch.tensor([text]), output_hidden_states=True).hidden_states[-1][0] for text in TEXTS]
    return [each.numpy() for each in found]


PIPELINES = [
    pytest.param((Planned(stages=1),), id="one stage"),
    pytest.param((Planned(stages=2, pages=32),), id="two stages with little memory"),
    pytest.param((Planned(stages=2, lost_stage=1, lost_at=2), Planned(stages=3)), id="a stage that is lost"),
]


@pytest.mark.parametrize("planned", PIPELINES)
@pytest.mark.parametrize("pooling", ["mean", "last"])
async def test_vectors_of_texts(
    model: StoredModel, states: list[NDArray[np.float32]], pooling: str, planned: tuple[Planned, ...]
) -> None:
    inputs = tuple(EmbedInput(token_ids=text) for text in TEXTS)
    async with service_of(MemoryPipelines(model, *planned)) as service:
        *vectors, finished = [
            event async for event in service.embed(EmbedRequest(inputs=inputs, pooling=pooling, normalised=False))
        ]
        (short, _) = [
            event async for event in service.embed(EmbedRequest(inputs=inputs[:1], pooling=pooling, dimensions=5))
        ]
    assert isinstance(finished, EmbeddingFinished)
    assert finished.tokens == sum(map(len, TEXTS))
    for index, (vector, own) in enumerate(zip(vectors, states, strict=True)):
        assert isinstance(vector, Embedding)
        assert (vector.index, vector.tokens) == (index, len(own))
        wanted = own.mean(axis=0) if pooling == "mean" else own[-1]
        np.testing.assert_allclose(vector.numbers, wanted, atol=TOLERANCE * np.abs(own).max())
    assert isinstance(short, Embedding)
    cut = states[0][0][:5]
    np.testing.assert_allclose(short.numbers, cut / np.linalg.norm(cut), atol=TOLERANCE)


@pytest.mark.parametrize("planned", PIPELINES)
async def test_what_is_told_of_a_prompt_comes_before_its_answer(
    model: StoredModel, planned: tuple[Planned, ...]
) -> None:
    prompt, reference = TEXTS[2], model.reference()
    asked = GenerateRequest(token_ids=prompt, max_tokens=4, prompt_log_probabilities=3, ignore_eos=True)
    async with service_of(MemoryPipelines(model, *planned)) as service:
        items = [item async for item in service.generate(asked)]
    told = [item for item in items if isinstance(item, PromptLikelihoods)]
    assert items[: len(told)] == told
    assert isinstance(items[-1], Finished)
    assert [bool(each.first) for each in told] == [True, *[False] * (len(told) - 1)]
    each = [likelihood for part in told for likelihood in part.likelihoods]
    assert [one.token.token_id for one in each] == list(prompt[1:])
    scores = [one.token.log_probability for one in each]
    np.testing.assert_allclose(scores, reference_scores(reference, prompt), atol=1e-3)
    for one in each:
        best = [other.log_probability for other in one.likeliest]
        assert len(best) == 3
        assert best == sorted(best, reverse=True)
        assert best[0] >= one.token.log_probability - 1e-6
    drawn = [token for item in items if isinstance(item, Piece) for token in item.token_ids]
    assert drawn == reference_greedy(reference, prompt, 4)
