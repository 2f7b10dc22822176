"""From a text to the scores of its tokens, window by window.

Knows the tokenizer and the windows; which of them are under way is `coordinator.answering.reading`'s matter.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from coordinator.answering.reading import read_texts, texts_at_once
from coordinator.engine import Engine
from coordinator.scheduling.events import Scored
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.text.model_text import ModelText
from layerline.errors import RequestError
from layerline.plan import MAX_CONTEXT_TOKENS
from layerline.scoring import ScoreRequest, ScoringFinished, WindowScores


async def scored(
    request: ScoreRequest, engine: Engine, text: ModelText, *, context_tokens: int
) -> AsyncGenerator[WindowScores | ScoringFinished, None]:
    """The scores of a text, window by window, and what they took; ending the iteration cancels what is under way."""
    began_s = time.monotonic()
    with engine.counting_refusals():
        token_ids = await read_text(request, text, context_tokens=context_tokens)
    async with aclosing(scored_windows(engine, token_ids, request.window_tokens)) as windows:
        async for window in windows:
            yield window
    took_s = time.monotonic() - began_s
    yield ScoringFinished(text_tokens=len(token_ids), took_s=took_s, plan=engine.stages())


async def read_text(request: ScoreRequest, text: ModelText, *, context_tokens: int) -> tuple[int, ...]:
    """The token ids of what is to be scored, with a BOS if the model wants one; RequestError for what cannot be."""
    if request.window_tokens > context_tokens:
        raise RequestError(
            f"Windows of {request.window_tokens} tokens are wanted; the context holds {context_tokens}.",
            remedy="Ask for shorter windows, or for a longer context, if the model knows one (--context says both).",
        )
    if request.text is not None:
        token_ids = await text.prompt_ids(request.text, context_tokens=MAX_CONTEXT_TOKENS)
    else:
        assert request.token_ids is not None
        token_ids = request.token_ids
        text.check_ids(token_ids, context_tokens=MAX_CONTEXT_TOKENS)
    if len(token_ids) < 2:
        tokens = "1 token" if token_ids else "no token"
        raise RequestError(f"The text has {tokens}, and the first has none before it.", remedy="Give a longer text.")
    return token_ids


async def scored_windows(
    engine: Engine, token_ids: tuple[int, ...], window_tokens: int
) -> AsyncGenerator[WindowScores, None]:
    """The scores of all windows, in order; ending the iteration cancels those under way."""
    starts = range(0, len(token_ids) - 1, window_tokens)
    windows = [token_ids[start : start + window_tokens] for start in starts]
    requests = (functools.partial(SequenceRequest.scoring, token_ids=window) for window in windows)
    async with aclosing(read_texts(engine, requests, texts_at_once(window_tokens))) as readings:
        number = 0
        async for told in readings:
            yield WindowScores(
                start=starts[number] + 1,
                token_ids=windows[number][1:],
                log_probabilities=tuple(
                    each for event in told if isinstance(event, Scored) for each in event.log_probabilities
                ),
                text_tokens=len(token_ids),
            )
            number += 1
