"""From a text to the scores of its tokens, window by window.

Knows the tokenizer and the windows; the pages and steps are the engine's matter. Each window is a sequence of its own,
and some are under way at a time, so that steps are full and stages do not wait for each other.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

from coordinator.engine import Answer, Engine
from coordinator.scheduling.events import Scored
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.text.model_text import ModelText
from layerline.errors import OverloadedError, RequestError
from layerline.plan import MAX_CONTEXT_TOKENS
from layerline.scoring import ScoreRequest, ScoringFinished, WindowScores

TOKENS_AT_ONCE = 8192  # of the windows under way: more than a step has, for every stage of a pipeline
MOST_AT_ONCE = 64  # windows, so that the queue has room for others
LEAST_AT_ONCE = 2


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
    """The scores of all windows, in order; ending the iteration cancels those under way.

    Where the queue is full it waits for a window of its own, and raises OverloadedError if there is none.
    """
    at_once = max(LEAST_AT_ONCE, min(TOKENS_AT_ONCE // window_tokens, MOST_AT_ONCE))
    running: deque[_Window] = deque()
    async with AsyncExitStack() as stack:
        for start in range(0, len(token_ids) - 1, window_tokens):
            if len(running) == at_once:
                yield await running.popleft().scores(len(token_ids))
            ids = token_ids[start : start + window_tokens]
            while (window := await _begun(engine, stack, start, ids, may_wait=bool(running))) is None:
                yield await running.popleft().scores(len(token_ids))
            running.append(window)
        while running:
            yield await running.popleft().scores(len(token_ids))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Window:
    """A window under way, which its `life` ends; `start` is its place in the text."""

    start: int
    token_ids: tuple[int, ...]
    answer: Answer
    life: AsyncExitStack

    async def scores(self, text_tokens: int) -> WindowScores:
        """All its scores, once they are there; raises the error that ended it."""
        scores: list[float] = []
        async with self.life:
            while isinstance(event := await self.answer.next_event(), Scored):
                scores += event.log_probabilities
        return WindowScores(
            start=self.start + 1,
            token_ids=self.token_ids[1:],
            log_probabilities=tuple(scores),
            text_tokens=text_tokens,
        )


async def _begun(
    engine: Engine, stack: AsyncExitStack, start: int, token_ids: tuple[int, ...], *, may_wait: bool
) -> _Window | None:
    """A window under way, at the latest until the end of `stack`; None if it `may_wait` and the queue is full."""
    life = AsyncExitStack()
    stack.push_async_exit(life)
    try:
        request = functools.partial(SequenceRequest.scoring, token_ids=token_ids)
        answer = await life.enter_async_context(engine.answer(request))
    except OverloadedError:
        if may_wait:
            return None
        raise
    return _Window(start=start, token_ids=token_ids, answer=answer, life=life)
