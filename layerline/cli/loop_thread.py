"""An event loop on a thread of its own, so that the main thread can wait for a line and for Ctrl-C.

While somebody types, the client and a coordinator of this process must go on living; and a read of the terminal
cannot be cancelled, while Ctrl-C ends it by itself on the main thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")
CANCEL_DEADLINE_S = 5.0


class LoopThread:
    """A loop that runs coroutines for the main thread. Made by `loop_thread`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """What `coroutine` returns. Ctrl-C cancels it, waits until it has ended, and is raised here."""
        ended = threading.Event()

        async def tracked() -> Result:
            try:
                return await coroutine
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(tracked(), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            ended.wait(CANCEL_DEADLINE_S)
            raise

    @contextmanager
    def entered(self, block: AbstractAsyncContextManager[Result]) -> Iterator[Result]:
        """`block` entered for the time of this one. Both its ends run in one task, as timeouts and groups need."""
        entered: Future[Result] = Future()
        leave = asyncio.Event()

        async def live() -> None:
            try:
                async with block as value:
                    entered.set_result(value)
                    await leave.wait()
            except BaseException as failure:
                if entered.done():
                    raise
                entered.set_exception(failure)

        life = asyncio.run_coroutine_threadsafe(live(), self._loop)
        try:
            yield entered.result()
        except KeyboardInterrupt:
            if not entered.done():
                life.cancel()
            raise
        finally:
            self._loop.call_soon_threadsafe(leave.set)
            if entered.done():
                life.result()


@contextmanager
def loop_thread() -> Iterator[LoopThread]:
    """A loop for the time of a block; what still runs at its end is cancelled."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def live() -> None:
        stop = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(live(),), name="layerline-loop")
    thread.start()
    loop, stop = started.result()
    try:
        yield LoopThread(loop)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
