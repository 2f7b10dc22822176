"""Coroutines run on a thread beside the main one, and blocks are left there properly."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from layerline.cli.loop_thread import loop_thread
from layerline.errors import NoNodesError


async def fail() -> None:
    raise NoNodesError("No node.")


async def thread_name() -> str:
    return threading.current_thread().name


def test_coroutines_run_on_the_other_thread_and_their_errors_come_here() -> None:
    with loop_thread() as loop:
        assert loop.run(thread_name()) == "layerline-loop"
        with pytest.raises(NoNodesError, match="No node"):
            loop.run(fail())
    assert all(thread.name != "layerline-loop" for thread in threading.enumerate())


def test_a_block_is_entered_and_left_in_one_task() -> None:
    tasks = []

    @asynccontextmanager
    async def block() -> AsyncIterator[str]:
        tasks.append(asyncio.current_task())
        async with asyncio.TaskGroup():
            yield "inside"
        tasks.append(asyncio.current_task())

    with loop_thread() as loop, loop.entered(block()) as value:
        assert value == "inside"
        assert len(tasks) == 1
    assert tasks[0] is tasks[1]


def test_a_block_that_cannot_be_entered_says_why() -> None:
    @asynccontextmanager
    async def block() -> AsyncIterator[None]:
        await fail()
        yield

    with loop_thread() as loop, pytest.raises(NoNodesError, match="No node"), loop.entered(block()):
        pytest.fail("entered")


def test_what_still_runs_at_the_end_is_cancelled() -> None:
    ended = threading.Event()

    async def live() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def start() -> asyncio.Task[None]:
        task = asyncio.create_task(live())
        await asyncio.sleep(0)
        return task

    with loop_thread() as loop:
        loop.run(start())
    assert ended.is_set()
