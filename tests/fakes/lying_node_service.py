"""A node that says what no node should: its facts are changed on the way, and its model's card is what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from layerline.models.card import ModelCard
from layerline.rpc.v1 import node_pb2
from tests.fakes.node_service import FakeNode

PAUSE_S = 0.03
Events = Iterable[node_pb2.OpenModelEvent]


class LyingNode(FakeNode):
    """`change_facts` is called with each answer to `Describe`; `events`, if given, are the answer to `OpenModel`."""

    def __init__(self, name: str, card: ModelCard) -> None:
        super().__init__(name, card)
        self.change_facts: Callable[[node_pb2.NodeFacts], None] = lambda _: None
        self.events: Events | None = None

    async def Describe(self, request: Any, context: Any) -> node_pb2.NodeFacts:
        facts: node_pb2.NodeFacts = await super().Describe(request, context)
        self.change_facts(facts)
        return facts

    async def OpenModel(self, request: Any, context: Any) -> Any:
        if self.events is None:
            async for event in super().OpenModel(request, context):
                yield event
            return
        for event in self.events:
            yield event
            await asyncio.sleep(PAUSE_S)
