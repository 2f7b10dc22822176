"""The scores of a whole text, out of what is told window by window."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from layerline.perplexity import Perplexity
from layerline.scoring import ScoringFinished, WindowScores


async def scores_of(
    events: AsyncGenerator[WindowScores | ScoringFinished, None],
) -> tuple[list[WindowScores], ScoringFinished]:
    """All windows, and how the text finished, which comes last."""
    async with aclosing(events):
        *windows, finished = [event async for event in events]
    assert isinstance(finished, ScoringFinished)
    return [window for window in windows if isinstance(window, WindowScores)], finished


def perplexity_of(windows: Sequence[WindowScores]) -> Perplexity:
    """The perplexity over all of them."""
    perplexity = Perplexity()
    for window in windows:
        perplexity.add(window.log_probabilities)
    return perplexity
