"""Doing several things at once, as one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

Done = TypeVar("Done")


async def all_of(parts: Iterable[Coroutine[Any, Any, Done]]) -> list[Done]:
    """All results, in order. The first error ends the other parts and is raised as it is, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in parts]
    except BaseExceptionGroup as failures:  # a library's panic is no Exception
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancels `task` and waits for its end, whatever that is."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()  # whoever wants it asks for it; nobody need be told that it was not fetched
