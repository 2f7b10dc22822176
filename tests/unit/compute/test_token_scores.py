"""The scores of known tokens are the log-probabilities of `torch`, in float64 as far as float32 tells them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from layerline.frames import PageRun, Span
from layerline.step_result import TokenScores
from node.step.span_scores import KnownToken, scored_rows, span_scores, summed_rows
from node.step.token_scores import Likelihoods, likelihoods

ROWS, VOCABULARY = 9, 3000


def expected(logits: NDArray[np.float32], ids: list[int]) -> NDArray[np.float64]:
    exact = torch.log_softmax(torch.from_numpy(logits).double(), dim=1).numpy()
    chosen: NDArray[np.float64] = exact[np.arange(len(ids)), ids]
    return chosen


def log_probabilities(logits: NDArray[np.float32], ids: list[int]) -> list[float]:
    return [likelihoods(row, id_, 0)[0][0] for row, id_ in zip(logits, ids, strict=True)]


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("shift", [0.0, -800.0, 1e5])
def test_they_are_those_of_torch_in_float64(scale: float, shift: float) -> None:
    random = np.random.default_rng(1)
    logits = (scale * random.standard_normal((ROWS, VOCABULARY)) + shift).astype(np.float32)
    ids = [int(id_) for id_ in random.integers(0, VOCABULARY, ROWS - 1)] + [int(logits[-1].argmax())]
    scores = log_probabilities(logits, ids)
    np.testing.assert_allclose(scores, expected(logits, ids), rtol=1e-6, atol=1e-6)
    assert max(scores) <= 0.0


def test_the_logits_are_left_as_they_are() -> None:
    logits = np.random.default_rng(2).standard_normal((ROWS, VOCABULARY)).astype(np.float32)
    before = logits.copy()
    log_probabilities(logits, [0] * ROWS)
    np.testing.assert_array_equal(logits, before)


def test_a_token_that_is_certain_and_one_that_cannot_be() -> None:
    logits = np.full((2, 5), -np.inf, np.float32)
    logits[:, 3] = 1e30
    assert log_probabilities(logits, [3, 4]) == [0.0, -np.inf]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_only_the_row_that_is_not_numbers_has_no_score(bad: float) -> None:
    logits = np.zeros((3, 5), np.float32)
    logits[1, 2] = bad
    scores = log_probabilities(logits, [0, 0, 0])
    assert np.isnan(scores).tolist() == [False, True, False]


def span(sequence: int, count: int, next_ids: tuple[int, ...] = (), *, likeliest: int = 0, summed: int = 0) -> Span:
    pages = (PageRun(first=0, count=9),)
    return Span(
        sequence=sequence, start=10, count=count, pages=pages, next_ids=next_ids, likeliest=likeliest, summed=summed
    )


SPANS = (span(1, 2), span(2, 3, (7, 8)), span(3, 1, (9,)), span(4, 2), span(5, 2, (5, 6), likeliest=1))
BESIDE = [0, 0, 0, 1, 1]  # of the likeliest, for each row that is scored


def told(*log_probabilities: float) -> list[Likelihoods]:
    """Of each row; where one of the likeliest is told it is token 3, with -0.5."""
    return [((own, *[-0.5] * count), (3,) * count) for own, count in zip(log_probabilities, BESIDE, strict=True)]


def test_the_rows_are_the_last_ones_of_each_span() -> None:
    rows = [(row, token.id) for row, token in scored_rows(SPANS)]
    assert rows == [(3, 7), (4, 8), (5, 9), (8, 5), (9, 6)]
    assert [token for _, token in scored_rows(SPANS)][-1] == KnownToken(id=6, likeliest=1)
    assert summed_rows((span(1, 2), span(2, 3, summed=2), span(3, 1, summed=1))) == [range(3, 5), range(5, 6)]


def test_each_span_has_its_scores_and_a_sequence_without_a_number_none() -> None:
    scores, failed = span_scores(SPANS, told(-1.0, -2.0, float("nan"), -4.0, -5.0))
    assert scores == (
        TokenScores(sequence=2, position=12, log_probabilities=(-1.0, -2.0)),
        TokenScores(
            sequence=5,
            position=11,
            log_probabilities=(-4.0, -5.0),
            likeliest_ids=(3, 3),
            likeliest_log_probabilities=(-0.5, -0.5),
        ),
    )
    assert failed == {3}
    assert span_scores(SPANS, told(-1.0, -2.0, -3.0, -4.0, float("-inf")))[1] == {5}
