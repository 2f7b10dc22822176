"""Draws within a mask of tokens: what it forbids is never drawn, and what is left keeps its shares."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from layerline.frames import Sampling
from layerline.token_mask import TokenMask
from node.step.sampler import draw
from tests.fakes.logits import random_logits

VOCABULARY = 500
FILTERS: list[dict[str, Any]] = [{"top_k": 40}, {"top_p": 0.9}, {"min_p": 0.05}]
MASKS = [TokenMask.allowing([3, 17, 400]), TokenMask.forbidding(set(range(VOCABULARY)) - {3, 17, 400})]
BITMAP = TokenMask(form="bitmap", data=b"\x08\0\x02" + bytes(47) + b"\1")


@pytest.mark.parametrize("mask", [*MASKS, BITMAP])
@pytest.mark.parametrize("filters", [{}, *FILTERS, {"top_k": 1}])
def test_only_what_a_mask_allows_is_drawn_by_the_shares_that_are_left(mask: TokenMask, filters: dict[str, Any]) -> None:
    logits = random_logits(4, VOCABULARY)
    alone = np.full(VOCABULARY, -np.inf, np.float32)
    alone[[3, 17, 400]] = logits[[3, 17, 400]]
    for position in range(50):
        drawn = draw(logits, Sampling(temperature=5.0, mask=mask, **filters), position)
        assert drawn in (3, 17, 400)
        assert drawn == draw(alone, Sampling(temperature=5.0, **filters), position)
    assert draw(logits, Sampling(mask=mask), 0) == int(alone.argmax())


def test_a_mask_comes_after_the_penalties() -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    logits[[3, 17]] = 2.0, 1.5
    penalties = {"presence_penalty": 1.0, "answer_ids": (3,), "answer_counts": (1,)}
    assert draw(logits, Sampling(mask=MASKS[0], **cast("Any", penalties)), 0) == 17
    assert draw(logits, Sampling(mask=MASKS[0]), 0) == 3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_mask_that_leaves_nothing_gives_no_token_nor_does_it_hide_what_is_no_number(temperature: float) -> None:
    nothing = TokenMask.forbidding(range(VOCABULARY))
    assert draw(random_logits(0, VOCABULARY), Sampling(temperature=temperature, mask=nothing), 0) is None
    logits = random_logits(0, VOCABULARY)
    logits[18] = np.nan
    assert draw(logits, Sampling(temperature=temperature, mask=MASKS[0]), 0) is None
