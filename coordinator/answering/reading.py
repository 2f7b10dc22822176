"""Texts that are read and not continued, some at a time, so that steps are full and stages do not wait for each other.

Each is a sequence of its own. What is told of one is given whole, in the order of the texts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from coordinator.engine import Answer, Engine
from coordinator.scheduling.events import Scored, Summed
from coordinator.scheduling.sequence import SequenceRequest
from layerline.errors import OverloadedError

TOKENS_AT_ONCE = 8192  # of the texts under way: more than a step has, for every stage of a pipeline
MOST_AT_ONCE = 64  # texts, so that the queue has room for others
LEAST_AT_ONCE = 2

Told = Scored | Summed
MakeRequest = Callable[[int], SequenceRequest]


def texts_at_once(most_tokens: int) -> int:
    """How many texts of at most so many tokens are to be under way."""
    return max(LEAST_AT_ONCE, min(TOKENS_AT_ONCE // max(1, most_tokens), MOST_AT_ONCE))


async def read_texts(
    engine: Engine, requests: Iterable[MakeRequest], at_once: int
) -> AsyncGenerator[tuple[Told, ...], None]:
    """What is told of each text, in order; `requests` make one each, of the number of its sequence.

    Ending the iteration cancels those under way. Where the queue is full it waits for a text of its own, and raises
    OverloadedError if there is none.
    """
    running: deque[_Reading] = deque()
    async with AsyncExitStack() as stack:
        for request in requests:
            if len(running) == at_once:
                yield await running.popleft().told()
            while (reading := await _begun(engine, stack, request, may_wait=bool(running))) is None:
                yield await running.popleft().told()
            running.append(reading)
        while running:
            yield await running.popleft().told()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reading:
    """A text under way, which its `life` ends."""

    answer: Answer
    life: AsyncExitStack

    async def told(self) -> tuple[Told, ...]:
        """All that is told of it, once it is there; raises the error that ended it."""
        told: list[Told] = []
        async with self.life:
            while isinstance(event := await self.answer.next_event(), Scored | Summed):
                told.append(event)
        return tuple(told)


async def _begun(engine: Engine, stack: AsyncExitStack, request: MakeRequest, *, may_wait: bool) -> _Reading | None:
    """A text under way, at the latest until the end of `stack`; None if it `may_wait` and the queue is full."""
    life = AsyncExitStack()
    stack.push_async_exit(life)
    try:
        answer = await life.enter_async_context(engine.answer(request))
    except OverloadedError:
        if may_wait:
            return None
        raise
    return _Reading(answer=answer, life=life)
