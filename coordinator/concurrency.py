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
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
