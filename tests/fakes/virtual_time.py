"""An event loop whose time jumps to the next thing that is due, so that waiting takes no time in tests."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class _JumpingSelector(selectors.SelectSelector):
    """Where the loop would sleep, moves its time on instead."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing is due, so this would wait for ever"
            self.now_s += timeout
        return ready


class _AtOnce(ThreadPoolExecutor):
    """Does what is for another thread at once, since virtual time would not wait for it."""

    def submit(self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs) -> Future[Result]:
        future: Future[Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # it is for whoever awaits the future
            future.set_exception(error)
        return future


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self.set_default_executor(_AtOnce(1))

    def time(self) -> float:
        return self._jumping.now_s


def run_in_virtual_time(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """What `coroutine` returns, with every wait cut short to nothing; order and durations are as in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
