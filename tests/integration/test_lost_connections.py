"""Pipelines that are lost leave no link behind: connections go at once, and not when the collector comes round."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from coordinator.pipeline import pipeline
from coordinator.ring import Ring
from layerline.models.card import ModelCard
from layerline.plan import PipelinePlan
from layerline.rpc.transport import Transport
from tests.fakes.coordinators import answer, coordinator_of, prepared, split
from tests.fakes.losses import comes_to, epoch_of
from tests.fakes.node_service import FakeNode, nodes_of

LOSSES = 20


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is in a circle stays, as it may for as long as a process has little to do."""
    gc.disable()
    yield
    gc.enable()


async def failing(node: FakeNode) -> None:
    """The worker of the node fails at the next step."""

    def fail(_step: int) -> None:
        node.on_step = None
        raise MemoryError

    node.on_step = fail


@pytest.mark.more
@pytest.mark.usefixtures("no_collector")
async def test_pipelines_whose_stages_failed_leave_no_link(card: ModelCard, monkeypatch: pytest.MonkeyPatch) -> None:
    links: list[weakref.ref[Any]] = []
    open_pipeline = partial(pipeline, transport=Transport())

    @asynccontextmanager
    async def watched(*arguments: Any, **options: Any) -> AsyncIterator[tuple[PipelinePlan, Ring]]:
        async with open_pipeline(*arguments, **options) as (bound, ring):
            links.extend((weakref.ref(ring.frames), weakref.ref(ring.results)))
            yield bound, ring

    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        monkeypatch.setattr(coordinator, "_open_pipeline", watched)
        await prepared(coordinator, split("a", "b"))
        for number in range(LOSSES):
            epoch = epoch_of(coordinator)
            await failing(nodes[number % 2])
            assert (await answer(coordinator, max_tokens=2)).text == "bc"
            await comes_to(coordinator, "serving", after_epoch=epoch)
        for _ in range(3):  # what ends with a task has ended a turn of the loop later
            await asyncio.sleep(0)
        assert len(links) == 2 * (LOSSES + 1)
        assert [link() for link in links[:-2]] == [None] * 2 * LOSSES
