"""A task that is cancelled in mid-write goes on when the write has ended, and in the end without it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc.aio
import pytest

from layerline.rpc.whole_writes import END_DEADLINE_S, write_whole


class SlowContext:
    """A call that takes what is written when the test lets it."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.written: list[Any] = []
        self._failure = failure

    async def write(self, message: Any) -> None:
        self.begun.set()
        await self.may_end.wait()
        if self._failure:
            raise self._failure
        self.written.append(message)


async def begun(context: SlowContext, end_deadline_s: float = END_DEADLINE_S) -> asyncio.Task[None]:
    call = cast("grpc.aio.ServicerContext[Any, Any]", context)  # only `write` is used
    task = asyncio.create_task(write_whole(call, "word", end_deadline_s=end_deadline_s))
    await context.begun.wait()
    return task


async def test_a_write_that_nothing_disturbs() -> None:
    context = SlowContext()
    task = await begun(context)
    context.may_end.set()
    await task
    assert context.written == ["word"]


async def test_a_failure_is_raised() -> None:
    context = SlowContext(ValueError("gone"))
    task = await begun(context)
    context.may_end.set()
    with pytest.raises(ValueError, match="gone"):
        await task


@pytest.mark.parametrize("failure", [None, ValueError("gone")])
async def test_a_cancelled_task_goes_on_once_the_write_has_ended(failure: Exception | None) -> None:
    context = SlowContext(failure)
    task = await begun(context)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=0)
    assert not done
    context.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert context.written == ([] if failure else ["word"])


async def test_a_write_that_never_ends_is_not_waited_for() -> None:
    context = SlowContext()
    task = await begun(context, end_deadline_s=0.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert context.written == []
