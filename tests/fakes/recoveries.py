"""How a node is lost at a step under answers, and which answers are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any

from coordinator.coordinator import Coordinator
from layerline.answer import Completion
from layerline.requests import GenerateRequest
from tests.fakes.coordinators import joined
from tests.fakes.node_service import FakeNode

TOKENS = 20
SOME: dict[str, Any] = {"max_tokens": TOKENS}  # of which each takes a step
Lose = Callable[[FakeNode], Coroutine[Any, Any, None]]


async def kill_worker(node: FakeNode) -> None:
    """Its worker ends as a killed process does."""
    assert node.worker is not None
    await node.worker.die()


def at_step(step: int, node: FakeNode, lose: Lose = kill_worker) -> asyncio.Event:
    """Has the node lost once, at that step of its own; set when it is."""
    losing = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []  # kept from the collector

    def count(number: int) -> None:
        if number == step and not losing.is_set():
            losing.set()
            tasks.append(asyncio.create_task(lose(node)))

    node.on_step = count
    return losing


def same_answer(one: Completion, other: Completion) -> bool:
    """Whether two answers are equal but for the time they took and what was lost on the way."""
    return (one.text, one.token_ids, one.finished.usage, one.finished.finish_reason) == (
        other.text,
        other.token_ids,
        other.finished.usage,
        other.finished.finish_reason,
    )


def wait_for(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    """A hook of a node that waits until `event` is set."""

    async def wait() -> None:
        await event.wait()

    return wait


async def joined_of(coordinator: Coordinator, request: GenerateRequest) -> Completion:
    """The whole answer to `request`."""
    async with aclosing(coordinator.generate(request)) as items:
        return joined([item async for item in items])
