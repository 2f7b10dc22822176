"""What ends comes to its end, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.concurrency import ended


async def test_an_end_is_waited_for_though_the_waiter_is_cancelled_twice() -> None:
    giving_back, given_back = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        giving_back.clear()
        try:
            await asyncio.Event().wait()
        finally:
            giving_back.set()
            await given_back.wait()

    async with asyncio.timeout(5.0):
        working = asyncio.create_task(work())
        await asyncio.sleep(0)  # it begins
        ending = asyncio.create_task(ended(working))
        await giving_back.wait()
        for _ in range(2):
            ending.cancel()
            await asyncio.sleep(0)  # the cancellation reaches it
            assert not ending.done()
        given_back.set()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert working.cancelled()


async def test_the_error_of_what_is_ended_is_not_raised() -> None:
    async def fails() -> None:
        raise ValueError

    failing = asyncio.create_task(fails())
    await asyncio.wait((failing,))
    await ended(failing)
    assert isinstance(failing.exception(), ValueError)


async def test_all_are_waited_for_before_the_waiters_own_cancellation_is_raised() -> None:
    given_back, ends = asyncio.Event(), 0

    async def work() -> None:
        nonlocal ends
        try:
            await asyncio.Event().wait()
        finally:
            await given_back.wait()
            ends += 1

    async with asyncio.timeout(5.0):
        working = [asyncio.create_task(work()) for _ in range(2)]
        await asyncio.sleep(0)  # they begin
        ending = asyncio.create_task(ended(*working))
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.sleep(0)
        given_back.set()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert ends == 2
