"""Tokens drawn from logits that lie in parts on several ranks, and their scores, are those of the whole."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

from layerline.frames import Sampling
from layerline.step_result import SampledToken
from layerline.token_mask import TokenMask
from node.model.token_sampling import TokenSampling
from node.ranks.group import Alone
from node.step.sampled_token import WantedToken
from node.step.span_scores import KnownToken
from node.step.token_scores import Likelihoods
from tests.fakes.ranked_stages import shared_groups, together

CUTS = (0, 5, 6, 20)  # of a vocabulary of 20 on three ranks
WAYS = [
    Sampling(),
    Sampling(return_logits=True),
    Sampling(temperature=1.0, seed=3),
    Sampling(repetition_penalty=2.0, prompt_ids=(5, 12)),
    Sampling(repetition_penalty=2.0),
    Sampling(presence_penalty=2.0, answer_ids=(5, 12), answer_counts=(1, 3)),
    Sampling(prompt_ids=(5, 12)),
    Sampling(mask=TokenMask.allowing([5, 19])),
    Sampling(temperature=5.0, mask=TokenMask.forbidding(range(18))),
]


def draws_of(ways: list[Sampling]) -> list[WantedToken]:
    return [WantedToken(sequence=row, position=5, sampling=sampling) for row, sampling in enumerate(ways)]


def drawn_in_parts(logits_NW: Tensor, draws: list[WantedToken]) -> list[list[SampledToken]]:
    """What each of three ranks draws, in blocks of two rows."""
    drawings = [TokenSampling(first, group) for first, group in zip(CUTS, shared_groups(3), strict=False)]

    def work(rank: int) -> list[SampledToken]:
        part_NV = logits_NW[:, CUTS[rank] : CUTS[rank + 1]]
        return drawings[rank].after((part_NV[n : n + 2], draws[n : n + 2]) for n in range(0, len(draws), 2))

    return together([functools.partial(work, rank) for rank in range(3)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", range(5))
def test_every_way_of_drawing_gives_what_the_whole_gives(seed: int, dtype: torch.dtype) -> None:
    """Few different numbers, so that the likeliest is often one of several that are equal."""
    logits_NW = torch.randint(0, 3, (len(WAYS), CUTS[-1]), generator=torch.Generator().manual_seed(seed)).to(dtype)
    draws = draws_of(WAYS)
    first, *others = drawn_in_parts(logits_NW, draws)
    assert first == TokenSampling(0, Alone()).after([(logits_NW, draws)])
    assert others == [[], []]


def test_a_mask_holds_wherever_the_likeliest_tokens_lie() -> None:
    logits_1W = torch.arange(CUTS[-1]).float()[None]
    for allowed in ([0], [4, 5], [3, 12]):
        draws = draws_of([Sampling(mask=TokenMask.allowing(allowed))])
        (token,) = drawn_in_parts(logits_1W, draws)[0]
        assert token.token_id == allowed[-1]


def test_of_equal_tokens_the_first_is_drawn_wherever_it_lies() -> None:
    for likeliest in ([4, 5], [5, 19], [6, 7], [0, 19], [19]):
        logits_1W = torch.zeros(1, CUTS[-1])
        logits_1W[0, likeliest] = 1.0
        (token,) = drawn_in_parts(logits_1W, draws_of([Sampling()]))[0]
        assert token.token_id == likeliest[0]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 5, 19])
@pytest.mark.parametrize("way", [Sampling(), Sampling(temperature=1.0)])
def test_after_a_logit_that_is_no_number_on_any_rank_nothing_is_drawn(value: float, place: int, way: Sampling) -> None:
    """The other rows are drawn from, in that block and the next."""
    logits_NW = torch.zeros(4, CUTS[-1])
    logits_NW[1, place] = value
    first, *others = drawn_in_parts(logits_NW, draws_of([way] * 4))
    assert [token.sequence for token in first] == [0, 2, 3]
    assert others == [[], []]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_known_tokens_are_scored_as_by_the_whole(dtype: torch.dtype) -> None:
    logits_NW = torch.randn(5, CUTS[-1], generator=torch.Generator().manual_seed(1)).to(dtype)
    logits_NW[3, 7] = float("nan")
    ids = [0, 4, 5, 19, 6]
    known = [KnownToken(id=id_, likeliest=2) for id_ in ids]
    drawings = [TokenSampling(first, group) for first, group in zip(CUTS, shared_groups(3), strict=False)]

    def work(rank: int) -> list[Likelihoods]:
        part_NV = logits_NW[:, CUTS[rank] : CUTS[rank + 1]]
        return drawings[rank].scores((part_NV[n : n + 2], known[n : n + 2]) for n in range(0, len(ids), 2))

    first, *others = together([functools.partial(work, rank) for rank in range(3)])
    whole = TokenSampling(0, Alone()).scores([(logits_NW, known)])
    assert [told for told, _ in first] == [pytest.approx(told, rel=1e-6, nan_ok=True) for told, _ in whole]
    assert [likeliest for _, likeliest in first] == [likeliest for _, likeliest in whole]
    exact = torch.log_softmax(logits_NW.double(), dim=1)[torch.arange(5), torch.tensor(ids)]
    assert [told[0] for told, _ in whole] == pytest.approx(exact.tolist(), rel=1e-6, nan_ok=True)
    assert others == [[], []]
