"""What is told of a drawn token: its log-probability and the likeliest in its place are those of `transformers`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from layerline.frames import Sampling
from tests.fakes.model_files import TinyModel
from tests.fakes.ranked_stages import ranked_chain
from tests.fakes.tiny_models import BY_KERNELS, Rows, StageChain, StoredModel, reference_logits

TOKENS = [int(token) for token in np.random.default_rng(5).integers(3, 200, 20)]
WITHIN = 1e-3
TOLD = 5
# What changes a draw changes nothing that is told.
SAMPLING = Sampling(temperature=3.0, seed=7, bias_ids=(9,), biases=(50.0,), log_probabilities=TOLD)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    return StoredModel.written(tmp_path_factory.mktemp("model"), TinyModel(layers=2))


@pytest.fixture(params=["one stage", "two stages by the kernels", "two ranks"])
def chain(request: pytest.FixtureRequest, model: StoredModel) -> Iterator[StageChain]:
    if request.param == "two ranks":
        with ranked_chain(model, (2,)) as chain:
            yield chain
        return
    yield model.chain(1) if request.param == "one stage" else model.chain(2, **BY_KERNELS)


def test_they_are_those_of_transformers(model: StoredModel, chain: StageChain) -> None:
    expected = torch.log_softmax(torch.from_numpy(reference_logits(model.reference(), TOKENS)).double(), -1).numpy()
    for start in range(0, len(TOKENS), 5):
        rows = TOKENS[start : start + 5]
        (token,) = chain.step(Rows(token_ids=rows, start=start, sampling=SAMPLING))
        wanted = expected[start + len(rows) - 1]
        assert token.log_probabilities[0] == pytest.approx(wanted[token.token_id], abs=WITHIN)
        assert list(token.log_probabilities[1:]) == pytest.approx(sorted(wanted)[: -TOLD - 1 : -1], abs=WITHIN)
        told = [wanted[id_] for id_ in token.likeliest_ids]
        assert told == pytest.approx(list(token.log_probabilities[1:]), abs=WITHIN)
        assert len(set(token.likeliest_ids)) == TOLD


def test_those_of_known_tokens_are_too(model: StoredModel, chain: StageChain) -> None:
    expected = torch.log_softmax(torch.from_numpy(reference_logits(model.reference(), TOKENS)).double(), -1).numpy()
    for start in range(0, len(TOKENS) - 1, 7):
        rows = TOKENS[start : min(start + 7, len(TOKENS) - 1)]
        next_ids = TOKENS[start + 1 : start + 1 + len(rows)]
        (scores,) = chain.result(Rows(token_ids=rows, start=start, next_ids=next_ids, likeliest=TOLD)).scores
        wanted = expected[start : start + len(rows)]
        own = [each[id_] for each, id_ in zip(wanted, next_ids, strict=True)]
        assert list(scores.log_probabilities) == pytest.approx(own, abs=WITHIN)
        best = [each for row in wanted for each in sorted(row)[: -TOLD - 1 : -1]]
        assert list(scores.likeliest_log_probabilities) == pytest.approx(best, abs=WITHIN)
        ids = np.array(scores.likeliest_ids).reshape(len(rows), TOLD)
        told = np.take_along_axis(wanted, ids, 1).ravel().tolist()
        assert told == pytest.approx(list(scores.likeliest_log_probabilities), abs=WITHIN)
