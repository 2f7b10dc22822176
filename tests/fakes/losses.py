"""How nodes and workers of this process are lost, and what must work after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from coordinator.coordinator import Coordinator
from coordinator.model_life import ModelState
from layerline.frames import Frame
from node.worker.ring_service import Seat
from tests.fakes.coordinators import answer, prepared, split
from tests.fakes.node_service import FakeNode

LONG: dict[str, Any] = {"max_tokens": 80}
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


async def swallow(frame: Frame) -> None:
    """What a stage does whose steps never come back."""


def epoch_of(coordinator: Coordinator) -> int:
    """The epoch of the pipeline in service, or of the last one."""
    assert coordinator._service is not None
    assert coordinator._service.plan is not None
    (pipeline,) = coordinator._service.plan.pipelines
    return pipeline.epoch


async def comes_to(coordinator: Coordinator, *states: ModelState, after_epoch: int = 0) -> None:
    """Returns once the model in service is in one of these states, if it serves in a later epoch than that."""
    service = coordinator._service
    assert service is not None
    while service.state not in states or (service.state == "serving" and epoch_of(coordinator) <= after_epoch):
        await service._changed.wait()


async def works_without(lost: FakeNode, coordinator: Coordinator, *names: str) -> None:
    """The coordinator brings the model up on the others, and it answers."""
    lost.hooks.clear()
    lost.on_step = None
    plan = await prepared(coordinator, split(*names))
    assert [stage.node for stage in plan.stages] == list(names)
    assert (await answer(coordinator, max_tokens=3)).text == "bcd"
