"""A coordinator over nodes of this process, and what its clients get of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from coordinator.coordinator import Coordinator
from coordinator.model_life import Recovery
from coordinator.service_bounds import ServiceBounds
from coordinator.settings import CoordinatorSettings
from layerline.answer import AnswerItem, Completion, Finished, Piece
from layerline.models.card import ModelCard
from layerline.option import options_of
from layerline.plan_request import ManualStage, PlanRequest
from layerline.reports import PlanReport, PrepareEvent, Ready
from layerline.requests import GenerateRequest
from layerline.rpc.transport import Transport
from layerline.sampling import SamplingOptions
from tests.fakes.node_service import FakeNode, nodes_of

DEADLINE_S = 60.0  # so that a busy machine is no failure
BOUNDS = ServiceBounds(recovery=Recovery(pause_s=0.0))  # nodes of this process do not come back by themselves


def settings_for(nodes: Sequence[FakeNode], name: str = "test") -> CoordinatorSettings:
    """A coordinator that asks these nodes only."""
    return CoordinatorSettings(name=name, nodes=tuple(node.address for node in nodes), mdns=False)


@asynccontextmanager
async def coordinator_of(
    nodes: Sequence[FakeNode], name: str = "test", *, bounds: ServiceBounds = BOUNDS
) -> AsyncIterator[Coordinator]:
    """A coordinator for these nodes, which must be free again soon after it."""
    async with asyncio.timeout(DEADLINE_S):
        async with Coordinator(settings_for(nodes, name), Transport(), address="here:1", bounds=bounds) as coordinator:
            yield coordinator
        await asyncio.gather(*(node.freed() for node in nodes))


@asynccontextmanager
async def two_nodes(card: ModelCard) -> AsyncIterator[tuple[Coordinator, list[FakeNode]]]:
    """A coordinator over the nodes a and b, and these."""
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        yield coordinator, nodes


def split(*names: str, layers: int = 6, model: str = "tiny") -> PlanRequest:
    """A request for as many stages as names, in that order."""
    each = layers // len(names)
    stages = (
        ManualStage(node=name, first_layer=index * each, last_layer=(index + 1) * each - 1)
        for index, name in enumerate(names)
    )
    return PlanRequest(model=model, layers=tuple(stages))


async def prepared(coordinator: Coordinator, request: PlanRequest) -> PlanReport:
    """The plan that is in effect in the end."""
    events = await events_of(coordinator, request)
    assert isinstance(events[-1], Ready)
    return events[-1].plan


async def events_of(coordinator: Coordinator, request: PlanRequest) -> list[PrepareEvent]:
    """All that is told on the way."""
    async with aclosing(coordinator.prepare(request)) as events:
        return [event async for event in events]


async def answer(coordinator: Coordinator, prompt: str = "a", **options: Any) -> Completion:
    """The whole answer to a request."""
    async with aclosing(coordinator.generate(request_of(prompt, **options))) as items:
        return joined([item async for item in items])


def request_of(prompt: str, **options: Any) -> GenerateRequest:
    """A request with the options of its sampling beside the others, as the clients take them."""
    of_sampling = options_of(SamplingOptions)
    drawn = {name: options.pop(name) for name in list(options) if name in of_sampling}
    return GenerateRequest(prompt=prompt, sampling=SamplingOptions(**drawn), **options)


def joined(items: Sequence[AnswerItem]) -> Completion:
    """The completion that a stream's items make up."""
    assert isinstance(items[-1], Finished)
    finished = sorted((item for item in items if isinstance(item, Finished)), key=lambda item: item.index)
    return Completion.joined([item for item in items if isinstance(item, Piece)], *finished)
