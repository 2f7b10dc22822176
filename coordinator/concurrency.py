"""Doing several things at once, as one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from layerline.errors import LayerlineError, first_of, without_trace

Done = TypeVar("Done")


async def all_of(parts: Iterable[Coroutine[Any, Any, Done]]) -> list[Done]:
    """All results, in order. The first error ends the other parts and is raised as it is, not in a group."""
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in parts]
    except BaseExceptionGroup as failures:  # a library's panic is no Exception
        failure = first_of(failures)
    if failure:  # raised here and not there, so that it does not have its group for a context
        raise failure
    return [task.result() for task in tasks]


async def ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancels `tasks` and waits for the end of all, whatever that is; cancelled meanwhile, it waits all the same."""
    for task in tasks:
        task.cancel()
    await outlasted(*tasks)


async def outlasted(*tasks: asyncio.Task[Any]) -> None:
    """Waits for the end of `tasks`, whatever that is. A cancellation of the caller is raised only then.

    What gives something back must come to its end, also when a second one wants it given back meanwhile.
    """
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):  # which a cancelled task keeps until asked
            failure = task.exception()  # whoever wants it asks for it; nobody need be told that it was not fetched
            if isinstance(failure, LayerlineError):
                without_trace(failure)
    if cancelled:
        raise cancelled
