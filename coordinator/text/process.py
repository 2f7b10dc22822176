"""Owns a text child: starts it at the first request, keeps it, ends it when it is late or fails, and starts it again.

Requests take turns, each with a deadline of its own; so many may wait, and only so long. What the child does is decided
in `coordinator.text.child`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from types import TracebackType
from typing import Self

from coordinator.concurrency import ended, outlasted
from coordinator.text.frames import Message, packed, receive_frame
from layerline.endings import task_is_cancelled
from layerline.errors import NoCoordinatorError, OverloadedError

MAX_WAITING = 64
MAX_WAIT_S = 30.0
RETRY_AFTER_S = 2  # a request takes some hundredths of a second
START_DEADLINE_S = 60.0  # for a child's start and the reading of a large tokenizer, on a busy machine
WRITE_BYTES = 1 << 20
ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}


class OverLimitError(Exception):
    """The child did not answer within its deadline, its processor time or its memory; `str()` says which."""


class TextProcess:
    """A text child whose first message is what `setup` makes; with `keep` false it is ended after each request."""

    def __init__(self, setup: Callable[[], Message], *, keep: bool = True) -> None:
        self._setup = setup
        self._keep = keep
        self._turns = asyncio.Lock()
        self._waiting = 0
        self._numbers = itertools.count(1)
        self._child: Process | None = None
        self._exchanging: asyncio.Task[Message] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True  # first, as the end of this exchange gives the turn to the next asker
        try:
            if self._exchanging is not None:
                await ended(self._exchanging)
        finally:
            await outlasted(asyncio.create_task(self._end_child()))

    async def ask(self, request: Message, *, deadline_s: float) -> Message:
        """The child's answer. OverLimitError if it gives none; OverloadedError if too many ask, or for too long.

        NoCoordinatorError once the block is left.

        A request whose asker leaves is worked on to its end or deadline all the same: a new child would cost more.
        """
        if self._waiting >= MAX_WAITING:
            raise _overloaded(self._waiting)
        self._waiting += 1
        try:
            await self._turn()
            exchanging = asyncio.create_task(self._exchange(request, deadline_s))
            exchanging.add_done_callback(self._end_turn)
            self._exchanging = exchanging
            return await _outcome(exchanging)
        finally:
            self._waiting -= 1

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await self._turns.acquire()
        except TimeoutError:
            raise _overloaded(self._waiting) from None
        if self._closed:
            self._turns.release()
            raise _left()

    def _end_turn(self, exchanging: asyncio.Task[Message]) -> None:
        self._exchanging = None
        self._turns.release()
        if not exchanging.cancelled():
            exchanging.exception()  # of an asker who has left

    async def _exchange(self, request: Message, deadline_s: float) -> Message:
        answered = False
        try:
            async with asyncio.timeout(deadline_s if self._child else deadline_s + START_DEADLINE_S):
                answer = await self._answer(request)
            answered = self._keep and answer.get("error") != "panic"
            return answer
        except TimeoutError as error:
            raise OverLimitError(f"it took over {deadline_s:g} s") from error
        except (ValueError, TypeError, EOFError, OSError) as error:
            raise OverLimitError(await self._ending()) from error
        finally:
            if not answered:
                await self._end_child()

    async def _answer(self, request: Message) -> Message:
        if self._child is None:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "coordinator.text.child"),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=WRITE_BYTES,
                env={**os.environ, **ENVIRONMENT},
                start_new_session=True,  # Ctrl-C is for the parent
            )
            await self._write(packed(self._setup()))
        number = next(self._numbers)
        await self._write(packed({"number": number, **request}))
        assert self._child.stdout is not None
        answer = await receive_frame(self._child.stdout)
        if answer.pop("number", None) != number:
            raise ValueError("an answer to something else")
        return answer

    async def _write(self, frame: bytes) -> None:
        """Writes a frame in parts, between which others have the event loop."""
        assert self._child is not None
        assert self._child.stdin is not None
        view = memoryview(frame)
        for start in range(0, len(view), WRITE_BYTES):
            self._child.stdin.write(view[start : start + WRITE_BYTES])
            await self._child.stdin.drain()

    async def _ending(self) -> str:
        """How the child ended, in words; it has, or is ended now."""
        child = self._child
        await self._end_child(grace_s=1.0)
        code = child.returncode if child else None
        if code == -getattr(signal, "SIGXCPU", 0):
            return "it took too much processor time"
        return "its process ended over memory" if code == -signal.SIGABRT else f"its process ended ({code})"

    async def _end_child(self, grace_s: float = 0.0) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if grace_s and child.returncode is None:
            await asyncio.wait([asyncio.ensure_future(child.wait())], timeout=grace_s)
        if child.returncode is None:
            child.kill()
        await child.communicate()
        await asyncio.sleep(0)  # asyncio closes its transport now; one that outlives the event loop complains


async def _outcome(exchanging: asyncio.Task[Message]) -> Message:
    """What comes of an exchange; it goes on when the asker is cancelled."""
    try:
        return await asyncio.shield(exchanging)
    except asyncio.CancelledError:
        if exchanging.cancelled() and not task_is_cancelled():
            raise _left() from None
        raise


def _left() -> NoCoordinatorError:
    return NoCoordinatorError("The model has left meanwhile.", remedy="Try again in a moment.")


def _overloaded(waiting: int) -> OverloadedError:
    return OverloadedError(
        f"{waiting} prompts are being prepared already, as many as may.",
        remedy=f"Try again in about {RETRY_AFTER_S} s.",
        retry_after_s=RETRY_AFTER_S,
    )
