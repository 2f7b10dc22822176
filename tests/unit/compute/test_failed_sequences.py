"""Rows that are not numbers fail their own sequence, alone and over several ranks; the others have their tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from layerline.frames import Sampling
from tests.fakes.model_files import TinyModel
from tests.fakes.ranked_stages import ranked_chain
from tests.fakes.tiny_models import Rows, StageChain, StoredModel, pages_of

BAD = 9  # the token whose embedding is not numbers


class Spotted(TinyModel):
    """A model of which one row of the embedding is not numbers."""

    def weights(self) -> dict[str, NDArray[np.float32]]:
        weights = super().weights()
        weights["embedding"][BAD] = np.nan
        return weights


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    return StoredModel.written(tmp_path_factory.mktemp("spotted"), Spotted(tied_output=False))


def check(chain: StageChain) -> None:
    """Sound sequences, drawn from and scored, and others with the bad token, of which one wants no token."""
    sound = Rows(token_ids=[3, 4, 5], pages=pages_of([0]), sequence=1, sampling=Sampling())
    bad = Rows(token_ids=[3, BAD, 5], pages=pages_of([1]), sequence=2, sampling=Sampling())
    chunk = Rows(token_ids=[3, 4, BAD], pages=pages_of([2]), sequence=3, sampling=None)
    scored = Rows(token_ids=[3, 4, 5], pages=pages_of([3]), sequence=4, next_ids=[4, 5, 6])
    bad_scored = Rows(token_ids=[3, BAD, 5], pages=pages_of([4]), sequence=5, next_ids=[6])
    alone = chain.result(sound)
    result = chain.result(bad, sound, chunk, scored, bad_scored)
    assert result.failed == (2, 3, 5)
    assert result.sampled == alone.sampled
    assert [scores.sequence for scores in result.scores] == [4]
    assert chain.result(sound).failed == ()


@pytest.mark.parametrize("stages", [1, 2])
def test_only_the_sequence_with_rows_that_are_not_numbers_fails(model: StoredModel, stages: int) -> None:
    for dtype in ("float32", "bfloat16"):
        check(model.chain(stages, dtype=dtype))


def test_the_same_over_several_ranks(model: StoredModel) -> None:
    with ranked_chain(model, [2, 1]) as chain:
        check(chain)


def test_logits_alone_that_are_not_numbers_fail_what_is_drawn_from_them(tmp_path: Path) -> None:
    class NoAnswer(TinyModel):
        def weights(self) -> dict[str, NDArray[np.float32]]:
            weights = super().weights()
            weights["output"][7] = np.nan
            return weights

    chain = StoredModel.written(tmp_path, NoAnswer(tied_output=False)).chain(1)
    asked = Rows(token_ids=[3, 4], pages=pages_of([0]), sequence=1, sampling=Sampling(temperature=1.0))
    silent = Rows(token_ids=[3, 4], pages=pages_of([1]), sequence=2, sampling=None)
    scored = Rows(token_ids=[3, 4], pages=pages_of([2]), sequence=3, next_ids=[4, 5])
    result = chain.result(asked, silent, scored)
    assert (result.failed, result.sampled, result.scores) == ((1, 3), (), ())
