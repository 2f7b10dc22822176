"""How likely tokens were, of an answer or a prompt, with the text of each."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

from coordinator.engine import Engine
from coordinator.scheduling.events import Scored
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.text.token_text import TokenText
from layerline.answer import Alternative, PromptLikelihoods, TokenLikelihood

Told = TypeVar("Told")


def likelihood_of(tokens: TokenText, ids: Sequence[int], log_probabilities: Sequence[float]) -> TokenLikelihood:
    """That of the first of `ids`, beside the likeliest in its place, which are the others."""
    token, *likeliest = (
        Alternative(token_id=id_, text=tokens.shown(id_), log_probability=told)
        for id_, told in zip(ids, log_probabilities, strict=True)
    )
    return TokenLikelihood(token=token, likeliest=tuple(likeliest))


async def prompt_likelihoods(
    token_ids: tuple[int, ...], likeliest: int, engine: Engine, tokens: TokenText
) -> AsyncGenerator[PromptLikelihoods, None]:
    """Those of the tokens of a prompt, as they come, with so many of the likeliest in each place.

    Ending the iteration cancels what is under way.
    """
    first, count = tokens.shown(token_ids[0]), min(likeliest, len(tokens.ends))
    if len(token_ids) == 1:
        yield PromptLikelihoods(first=first, likelihoods=())
        return
    request = functools.partial(SequenceRequest.scoring, token_ids=token_ids, likeliest=count)
    async with engine.answer(request) as answer:
        while isinstance(event := await answer.next_event(), Scored):
            told = enumerate(event.log_probabilities)
            yield PromptLikelihoods(
                first=first,
                likelihoods=tuple(
                    likelihood_of(
                        tokens,
                        (token_ids[event.position + place], *_own(event.likeliest_ids, place, count)),
                        (own, *_own(event.likeliest_log_probabilities, place, count)),
                    )
                    for place, own in told
                ),
            )
            first = b""


def _own(told: Sequence[Told], place: int, count: int) -> Sequence[Told]:
    return told[place * count : (place + 1) * count]
