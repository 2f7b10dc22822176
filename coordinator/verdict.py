"""The verdict on one pipeline that broke: many see it, most of them only a stream that ends, and one knows why.

Made before the pipeline and given to all who may see it break. Each says a word; the most telling of the words said in
time is the error that is told.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from coordinator.concurrency import ended
from layerline.errors import (
    DeadlineError,
    InternalError,
    LayerlineError,
    ModelError,
    NodeDrainingError,
    NodeHeldError,
    NodeLostError,
    PlanError,
    StageFailedError,
    without_trace,
)

OWN_WORDS = (StageFailedError, NodeDrainingError, NodeHeldError, ModelError, PlanError, InternalError)
_OWN_WORD = 3

Done = TypeVar("Done")


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long a better word is waited for, in seconds: after one that names a node, and while none does.

    A frozen worker is noticed by its neighbours up to a ping apart, so that who is named may come late.
    """

    telling_s: float = 0.5
    naming_s: float = 4.0


class Verdict:
    """The words on one pipeline, in a running event loop."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._words: list[LayerlineError] = []
        self._due_s = 0.0
        self._heard = asyncio.Event()
        self._sooner = asyncio.Event()

    @property
    def silent(self) -> frozenset[str]:
        """The nodes of which somebody said that they do not answer."""
        return frozenset(word.node for word in self._words if isinstance(word, NodeLostError))

    def hear(self, word: LayerlineError) -> None:
        """Somebody says that the pipeline is broken."""
        due_s = asyncio.get_running_loop().time() + patience_s(word, self._patience)
        self._due_s = min(due_s, self._due_s) if self._words else due_s
        self._words.append(word)
        self._heard.set()
        self._sooner.set()

    async def unless_broken(self, doing: Coroutine[Any, Any, Done]) -> Done:
        """What `doing` returns; what it raises is a word too.

        As soon as there is a word `doing` is ended and the word raised; the verdict may still be another.
        """
        task, heard = asyncio.create_task(doing), asyncio.create_task(self._heard.wait())
        try:
            await asyncio.wait((task, heard), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._words[0]
        finally:
            await ended(heard, task)
        try:
            return task.result()
        except LayerlineError as error:
            self.hear(error)
            raise

    async def reached(self) -> LayerlineError:
        """The most telling word, once patience is over."""
        await self._heard.wait()
        while (left_s := self._due_s - asyncio.get_running_loop().time()) > 0:
            self._sooner.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._sooner.wait()
        return most_telling([without_trace(word) for word in self._words])


def most_telling(words: Iterable[LayerlineError]) -> LayerlineError:
    """What a worker or daemon says of itself, else what was seen of a node; of equals the first."""
    return max(words, key=_telling)


def patience_s(word: LayerlineError, patience: Patience) -> float:
    """How long after this word better ones are waited for: not at all after somebody's own."""
    if _telling(word) == _OWN_WORD:
        return 0.0
    return patience.telling_s if _telling(word) > 0 else patience.naming_s


def _telling(word: LayerlineError) -> int:
    if isinstance(word, OWN_WORDS):
        return _OWN_WORD
    if isinstance(word, (NodeLostError, DeadlineError)):
        return 2 if word.node else 0
    return 1
