"""How nodes and workers of this process are lost, and what must work after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coordinator.coordinator import Coordinator
from node.worker.ring_service import Seat
from tests.fakes.coordinators import answer, prepared, split
from tests.fakes.node_service import FakeNode

LONG = {"max_tokens": 80}
Loss = Callable[[FakeNode], Awaitable[None]]


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def dies(node: FakeNode) -> None:
    node.die_soon()
    await for_ever()


async def loses_worker(node: FakeNode) -> None:
    assert node.worker is not None
    await node.worker.die()
    await for_ever()


def seat_of(node: FakeNode) -> Seat:
    """The place that the node's worker has."""
    assert node.worker is not None
    assert node.worker._ring is not None
    assert node.worker._ring._seat is not None
    return node.worker._ring._seat


async def swallow(_frame: object) -> None:
    """What a stage does whose steps never come back."""


async def works_without(lost: FakeNode, coordinator: Coordinator, *names: str) -> None:
    """The coordinator brings the model up on the others, and it answers."""
    lost.hooks.clear()
    lost.on_step = None
    plan = await prepared(coordinator, split(*names))
    assert [stage.node for stage in plan.stages] == list(names)
    assert (await answer(coordinator, max_tokens=3)).text == "bcd"
