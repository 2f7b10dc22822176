"""The perplexity of a text and its standard error, against the formulas written out."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from layerline.perplexity import Perplexity

SCORES = [-float(score) for score in np.random.default_rng(3).gamma(2.0, 1.5, 5000).astype(np.float32)]


def perplexity_of(*parts: list[float]) -> Perplexity:
    perplexity = Perplexity()
    for part in parts:
        perplexity.add(part)
    return perplexity


def test_it_is_the_exponential_of_the_mean() -> None:
    perplexity = perplexity_of(SCORES)
    assert perplexity.tokens == 5000
    assert perplexity.value == pytest.approx(math.exp(-statistics.fmean(SCORES)), rel=1e-12)


def test_its_error_is_that_of_the_mean_as_llama_cpp_has_it() -> None:
    count, mean = len(SCORES), statistics.fmean(SCORES)
    squares = statistics.fmean(score**2 for score in SCORES)
    by_hand = math.sqrt((squares - mean**2) / (count - 1)) * math.exp(-mean)
    assert perplexity_of(SCORES).standard_error == pytest.approx(by_hand, rel=1e-9)


def test_how_it_is_added_up_does_not_matter() -> None:
    whole, parts = perplexity_of(SCORES), perplexity_of(SCORES[:7], [], SCORES[7:4000], SCORES[4000:])
    assert (parts.value, parts.standard_error) == (whole.value, whole.standard_error)


def test_of_one_token_no_error_is_known_and_of_equal_ones_there_is_none() -> None:
    one = perplexity_of([-math.log(5)])
    assert one.value == pytest.approx(5)
    assert one.standard_error is None
    assert perplexity_of([-2.0] * 3).standard_error == 0.0


def test_a_certain_text_has_one_and_a_hopeless_one_no_number() -> None:
    assert perplexity_of([0.0, 0.0]).value == 1.0
    assert perplexity_of([-1e30]).value == math.inf
