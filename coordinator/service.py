"""The `Coordinator` service: messages to nouns and back around `coordinator.coordinator.Coordinator`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from coordinator.coordinator import Coordinator
from layerline.embedding import EmbedRequest
from layerline.errors import RequestError
from layerline.plan_request import PlanRequest
from layerline.reports import PlanReport
from layerline.requests import GenerateRequest
from layerline.rpc.convert import from_message, to_message, to_union
from layerline.rpc.status import stream_handler, unary_handler
from layerline.rpc.v1 import coordinator_pb2, coordinator_pb2_grpc, node_pb2
from layerline.scoring import ScoreRequest


class CoordinatorService(coordinator_pb2_grpc.CoordinatorServicer):
    """Offers one coordinator to clients."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    @unary_handler
    async def Describe(self, request: node_pb2.DescribeRequest, context: Any) -> coordinator_pb2.CoordinatorFacts:
        """Who this is, whatever the asker's wire version."""
        return to_message(self._coordinator.facts(), coordinator_pb2.CoordinatorFacts)

    @unary_handler
    async def Nodes(self, request: coordinator_pb2.NodesRequest, context: Any) -> coordinator_pb2.NodesReport:
        """Every node found."""
        return to_message(await self._coordinator.nodes(), coordinator_pb2.NodesReport)

    @unary_handler
    async def Models(self, request: coordinator_pb2.ModelsRequest, context: Any) -> coordinator_pb2.ModelsReport:
        """Every model that a node has."""
        return to_message(await self._coordinator.models(), coordinator_pb2.ModelsReport)

    @unary_handler
    async def Plan(self, request: coordinator_pb2.PlanRequest, context: Any) -> coordinator_pb2.PlanReport:
        """Who would hold what."""
        plan = await self._coordinator.plan(from_message(PlanRequest, request))
        return to_message(PlanReport.of(plan), coordinator_pb2.PlanReport)

    @unary_handler
    async def Stats(self, request: coordinator_pb2.StatsRequest, context: Any) -> coordinator_pb2.StatsReport:
        """How the work goes."""
        report = self._coordinator.stats()
        if report is None:
            raise RequestError("No model is in service.", remedy="Ask again once one is loaded.")
        return to_message(report, coordinator_pb2.StatsReport)

    @stream_handler
    async def Prepare(
        self, request: coordinator_pb2.PlanRequest, context: Any
    ) -> AsyncGenerator[coordinator_pb2.PrepareEvent, None]:
        """Loads a model."""
        async with aclosing(self._coordinator.prepare(from_message(PlanRequest, request))) as events:
            async for event in events:
                yield to_union(event, coordinator_pb2.PrepareEvent)

    @stream_handler
    async def Generate(
        self, request: coordinator_pb2.GenerateRequest, context: Any
    ) -> AsyncGenerator[coordinator_pb2.GenerateEvent, None]:
        """Answers a request; the client's leaving ends it."""
        async with aclosing(self._coordinator.generate(from_message(GenerateRequest, request))) as events:
            async for event in events:
                yield to_union(event, coordinator_pb2.GenerateEvent)

    @stream_handler
    async def Score(
        self, request: coordinator_pb2.ScoreRequest, context: Any
    ) -> AsyncGenerator[coordinator_pb2.ScoreEvent, None]:
        """Scores a text; the client's leaving ends it."""
        async with aclosing(self._coordinator.score(from_message(ScoreRequest, request))) as events:
            async for event in events:
                yield to_union(event, coordinator_pb2.ScoreEvent)

    @stream_handler
    async def Embed(
        self, request: coordinator_pb2.EmbedRequest, context: Any
    ) -> AsyncGenerator[coordinator_pb2.EmbedEvent, None]:
        """Texts as vectors; the client's leaving ends it."""
        async with aclosing(self._coordinator.embed(from_message(EmbedRequest, request))) as events:
            async for event in events:
                yield to_union(event, coordinator_pb2.EmbedEvent)
