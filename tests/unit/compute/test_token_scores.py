"""The scores of known tokens are the log-probabilities of `torch`, in float64 as far as float32 tells them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from layerline.frames import PageRun, Span, TokenScores
from node.step.span_scores import scored_rows, span_scores
from node.step.token_scores import log_probabilities

ROWS, VOCABULARY = 9, 3000


def expected(logits: NDArray[np.float32], ids: list[int]) -> NDArray[np.float64]:
    exact = torch.log_softmax(torch.from_numpy(logits).double(), dim=1).numpy()
    chosen: NDArray[np.float64] = exact[np.arange(len(ids)), ids]
    return chosen


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("shift", [0.0, -800.0, 1e5])
def test_they_are_those_of_torch_in_float64(scale: float, shift: float) -> None:
    random = np.random.default_rng(1)
    logits = (scale * random.standard_normal((ROWS, VOCABULARY)) + shift).astype(np.float32)
    ids = [int(id_) for id_ in random.integers(0, VOCABULARY, ROWS - 1)] + [int(logits[-1].argmax())]
    scores = log_probabilities(logits, ids)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected(logits, ids), rtol=1e-6, atol=1e-6)
    assert scores.max() <= 0.0


def test_the_logits_are_left_as_they_are() -> None:
    logits = np.random.default_rng(2).standard_normal((ROWS, VOCABULARY)).astype(np.float32)
    before = logits.copy()
    log_probabilities(logits, [0] * ROWS)
    np.testing.assert_array_equal(logits, before)


def test_a_token_that_is_certain_and_one_that_cannot_be() -> None:
    logits = np.full((2, 5), -np.inf, np.float32)
    logits[:, 3] = 1e30
    assert log_probabilities(logits, [3, 4]).tolist() == [0.0, -np.inf]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_only_the_row_that_is_not_numbers_has_no_score(bad: float) -> None:
    logits = np.zeros((3, 5), np.float32)
    logits[1, 2] = bad
    scores = log_probabilities(logits, [0, 0, 0])
    assert np.isnan(scores).tolist() == [False, True, False]


def span(sequence: int, count: int, next_ids: tuple[int, ...] = ()) -> Span:
    return Span(sequence=sequence, start=10, count=count, pages=(PageRun(first=0, count=9),), next_ids=next_ids)


SPANS = (span(1, 2), span(2, 3, (7, 8)), span(3, 1, (9,)), span(4, 2), span(5, 2, (5, 6)))


def test_the_rows_are_the_last_ones_of_each_span() -> None:
    assert scored_rows(SPANS) == [(3, 7), (4, 8), (5, 9), (8, 5), (9, 6)]


def test_each_span_has_its_scores_and_a_sequence_without_a_number_none() -> None:
    scores, failed = span_scores(SPANS, [-1.0, -2.0, float("nan"), -4.0, -5.0])
    assert scores == (
        TokenScores(sequence=2, position=12, log_probabilities=(-1.0, -2.0)),
        TokenScores(sequence=5, position=11, log_probabilities=(-4.0, -5.0)),
    )
    assert failed == {3}
    assert span_scores(SPANS, [-1.0, -2.0, -3.0, -4.0, float("-inf")])[1] == {5}
