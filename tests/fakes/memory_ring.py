"""A whole pipeline in one process: stages joined by links in memory, as the worker and coordinator use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from coordinator.ring import Ring
from coordinator.stats.route import Route
from layerline.answer import StageSummary
from layerline.errors import LayerlineError
from layerline.frames import Frame
from layerline.link import MemoryLink
from layerline.step_result import StepResult
from node.worker.ring_stage import RingStage
from node.worker.stage_compute import OnLoop, RankCompute


@asynccontextmanager
async def memory_ring(computes: Sequence[RankCompute], epoch: int = 1) -> AsyncIterator[Ring]:
    """The ring through `computes`; a stage that fails breaks every link with its error."""
    links = [MemoryLink[Frame]() for _ in computes]
    results = MemoryLink[StepResult]()
    tasks = [
        asyncio.create_task(_stage(compute, epoch, index, links, results)) for index, compute in enumerate(computes)
    ]
    try:
        names = tuple(f"n{index}" for index in range(len(computes)))
        yield Ring(epoch=epoch, frames=links[0], results=results, nodes=names)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def route(stages: int) -> Route:
    """The way through a memory ring of that many stages, of two layers each, with rows of 100 bytes."""
    summaries = tuple(
        StageSummary(node=f"n{stage}", first_layer=2 * stage, last_layer=2 * stage + 1) for stage in range(stages)
    )
    return Route(model="tiny", stages=summaries, row_bytes=(100,) * (len(summaries) - 1))


async def _stage(
    compute: RankCompute, epoch: int, index: int, links: Sequence[MemoryLink[Frame]], results: MemoryLink[StepResult]
) -> None:
    last = index == len(links) - 1
    stage = RingStage(
        OnLoop(compute),
        node=f"n{index}",
        epoch=epoch,
        stage_index=index,
        frames=None if last else links[index + 1],
        results=results if last else None,
    )
    try:
        while True:
            await stage.accept(await links[index].receive())
    except LayerlineError as error:
        for link in links:
            link.fail(error)
        results.fail(error)
