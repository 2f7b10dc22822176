"""The sum of rows, of which embeddings are made, is that of the last hidden states of `transformers`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from layerline.frames import Sampling
from tests.fakes.model_files import TinyModel
from tests.fakes.ranked_stages import ranked_chain
from tests.fakes.tiny_models import BY_KERNELS, Rows, StageChain, StoredModel, pages_of

TOKENS = [int(token) for token in np.random.default_rng(7).integers(3, 200, 30)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    return StoredModel.written(tmp_path_factory.mktemp("model"), TinyModel(layers=4))


@pytest.fixture(scope="module")
def states(model: StoredModel) -> NDArray[np.float32]:
    with torch.inference_mode():
        found = model.reference()(torch.tensor([TOKENS]), output_hidden_states=True).hidden_states[-1][0]
    array: NDArray[np.float32] = found.numpy()
    return array


@pytest.fixture(params=["one stage", "two stages", "two stages by the kernels", "two ranks"])
def chain(request: pytest.FixtureRequest, model: StoredModel) -> Iterator[StageChain]:
    if request.param == "two ranks":
        with ranked_chain(model, (2, 2)) as chain:
            yield chain
        return
    kernels = BY_KERNELS if request.param.endswith("kernels") else {}
    yield model.chain(1 if request.param == "one stage" else 2, **kernels)


def test_of_all_rows_in_chunks(states: NDArray[np.float32], chain: StageChain) -> None:
    total = np.zeros(states.shape[1], np.float32)
    for start in range(0, len(TOKENS), 11):
        rows = TOKENS[start : start + 11]
        (row_sum,) = chain.result(Rows(token_ids=rows, start=start, summed=len(rows), sampling=None)).sums
        assert (row_sum.end, row_sum.rows) == (start + len(rows), len(rows))
        total += np.frombuffer(row_sum.total.data, np.float32)
    np.testing.assert_allclose(total / len(TOKENS), states.mean(axis=0), atol=1e-4 * np.abs(states).max())


def test_of_the_last_row_beside_others_that_draw_or_are_scored(states: NDArray[np.float32], chain: StageChain) -> None:
    rows = [
        Rows(token_ids=TOKENS[:3], pages=pages_of([40]), sequence=2, sampling=Sampling()),
        Rows(token_ids=TOKENS, pages=pages_of(range(8)), summed=1, sampling=None),
        Rows(token_ids=TOKENS[:3], pages=pages_of([44]), sequence=3, next_ids=TOKENS[1:4]),
    ]
    result = chain.result(*rows)
    (row_sum,) = result.sums
    assert ([token.sequence for token in result.sampled], [each.sequence for each in result.scores]) == ([2], [3])
    found = np.frombuffer(row_sum.total.data, np.float32)
    np.testing.assert_allclose(found, states[-1], atol=1e-4 * np.abs(states).max())
