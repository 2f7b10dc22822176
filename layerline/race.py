"""Tries several ways to the same end: the first that succeeds wins, and a slow one does not hold up the next.

After RFC 8305 (happy eyeballs): each further candidate is tried when the one before failed, or after a short while.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from layerline.errors import LayerlineError

STAGGER_S = 0.25

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Race(Generic[Result]):
    """How a race ended: who won, with what (neither if all failed), and how each of those that lost before failed."""

    winner: str
    result: Result | None
    failures: tuple[tuple[str, Exception], ...]


async def race(candidates: Iterable[str], attempt: Callable[[str], Awaitable[Result]]) -> Race[Result]:
    """Tries `candidates` in order until one succeeds; a LayerlineError, OSError or TimeoutError is a failure to."""
    waiting = deque(candidates)
    failures: list[tuple[str, Exception]] = []
    tries: dict[asyncio.Task[Result], str] = {}
    try:
        while waiting or tries:
            if waiting:
                candidate = waiting.popleft()
                tries[asyncio.create_task(_run(attempt, candidate))] = candidate
            done, _ = await asyncio.wait(
                tries, timeout=STAGGER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in [task for task in tries if task in done]:
                candidate, failure = tries.pop(task), task.exception()
                if failure is None:
                    return Race(winner=candidate, result=task.result(), failures=tuple(failures))
                if not isinstance(failure, LayerlineError | OSError):
                    raise failure
                failures.append((candidate, failure))
    finally:
        for task in tries:
            task.cancel()
        await asyncio.gather(*tries, return_exceptions=True)
    return Race(winner="", result=None, failures=tuple(failures))


async def _run(attempt: Callable[[str], Awaitable[Result]], candidate: str) -> Result:
    return await attempt(candidate)
