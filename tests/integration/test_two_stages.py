"""Two stages on one node, of two models, that compute: held, answered from, lost and let go of by number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import psutil
import pytest

from layerline.hold import (
    Bind,
    Bound,
    Heartbeat,
    HoldCommand,
    HoldEvent,
    HoldHello,
    Load,
    Loaded,
    LoadProgress,
    Unload,
    Unloaded,
    Welcome,
    WorkerLost,
)
from layerline.models.index import index_model
from layerline.plan import StageSpec
from layerline.rpc.convert import from_union, to_union
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import node_pb2, node_pb2_grpc
from tests.fakes.daemon_parts import place_of
from tests.fakes.daemon_server import served_node
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.rank_node import RingEnds, ring_through
from tests.fakes.tiny_models import StoredModel

pytestmark = pytest.mark.system

DEADLINE_S = 300.0
PROMPT = (5, 6, 7)


class Coordinator:
    """Holds the node at `address`, commands it, and hears what it says."""

    def __init__(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        self._call = call
        self._events: asyncio.Queue[HoldEvent] = asyncio.Queue()
        self._commands = 0

    @classmethod
    @asynccontextmanager
    async def holding(cls, address: str) -> AsyncIterator[Coordinator]:
        """The hold, for the time of the block."""
        async with Transport().channel(address) as channel:
            coordinator = cls(node_pb2_grpc.NodeStub(channel).Hold())
            await coordinator._say(HoldHello.of("test"))
            tasks = [asyncio.create_task(coordinator._hear()), asyncio.create_task(coordinator._beat())]
            try:
                assert isinstance(await coordinator.next_event(), Welcome)
                yield coordinator
            finally:
                for task in tasks:
                    task.cancel()
                coordinator._call.cancel()

    async def load(self, stage: int, spec: StageSpec) -> Loaded:
        self._commands += 1
        await self._say(Load(command=self._commands, stage=stage, spec=spec))
        loaded = await self.next_event()
        assert isinstance(loaded, Loaded)
        assert loaded.stage == stage
        return loaded

    @asynccontextmanager
    async def ring(self, loaded: Loaded, digest: str, epoch: int) -> AsyncIterator[RingEnds]:
        """The stage in the place of a plan of its own."""
        self._commands += 1
        place = replace(place_of(epoch), plan_key=bytes([epoch]) * 16)
        await self._say(Bind(command=self._commands, stage=loaded.stage, place=place))
        assert await self.next_event() == Bound(command=self._commands, next_address="")
        async with ring_through(loaded.data_port, place, digest) as ring:
            yield ring

    async def unload(self, stage: int) -> None:
        self._commands += 1
        await self._say(Unload(command=self._commands, stage=stage))
        assert await self.next_event() == Unloaded(command=self._commands)

    async def next_event(self) -> HoldEvent:
        while isinstance(event := await self._events.get(), Heartbeat | LoadProgress):
            pass
        return event

    async def _say(self, command: HoldCommand) -> None:
        await self._call.write(to_union(command, node_pb2.HoldCommand))

    async def _hear(self) -> None:
        while isinstance(message := await self._call.read(), node_pb2.HoldEvent):
            self._events.put_nowait(from_union(HoldEvent, message))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            await self._say(Heartbeat())


@pytest.fixture
def models(tmp_path: Path) -> list[StoredModel]:
    """Two models of unlike sizes and weights in the node's folder."""
    (tmp_path / "models").mkdir()
    made = {"one.gguf": TinyModel(layers=2), "two.gguf": TinyModel(layers=3)}
    paths = [write_gguf(tmp_path / "models" / name, model) for name, model in made.items()]
    return [StoredModel(path=path, card=index_model(path, path.name, lambda _done, _total: None)) for path in paths]


def spec_of(model: StoredModel) -> StageSpec:
    return StageSpec(
        model=model.path.name,
        digest=model.card.digest,
        first_layer=0,
        last_layer=model.card.spec.layers - 1,
        dtype="float32",
        devices=("cpu",),
        pages=8,
        page_tokens=4,
        max_rows=16,
    )


def listening_on(port: int) -> psutil.Process:
    """The worker that has this data port."""
    (worker,) = (
        child
        for child in psutil.Process().children()
        if any(connection.laddr.port == port for connection in child.net_connections("tcp"))
    )
    return worker


async def test_two_stages_of_two_models(tmp_path: Path, models: list[StoredModel]) -> None:
    first, second = models
    expected = [model.chain(1).greedy(PROMPT, 3) for model in models]
    assert expected[0] != expected[1]
    async with asyncio.timeout(DEADLINE_S), served_node(tmp_path, computes=True) as node:
        async with Coordinator.holding(node.address) as coordinator:
            one, two = await coordinator.load(1, spec_of(first)), await coordinator.load(2, spec_of(second))
            assert [stage.spec for stage in node.keeper.loaded] == [spec_of(first), spec_of(second)]
            async with (
                coordinator.ring(one, first.card.digest, 1) as ring_of_one,
                coordinator.ring(two, second.card.digest, 2) as ring_of_two,
            ):
                answers = await asyncio.gather(ring_of_one.greedy(*PROMPT), ring_of_two.greedy(*PROMPT))
                assert list(answers) == expected
                listening_on(one.data_port).kill()
                lost = await coordinator.next_event()
                assert isinstance(lost, WorkerLost)
                assert lost.stage == 1
                assert await ring_of_two.greedy(*PROMPT) == expected[1]  # in the place it has had all the time
            one = await coordinator.load(1, spec_of(first))
            async with coordinator.ring(one, first.card.digest, 3) as ring_of_one:
                worker_of_two = listening_on(two.data_port)
                await coordinator.unload(2)
                assert not worker_of_two.is_running()
                assert await ring_of_one.greedy(*PROMPT) == expected[0]
        async with Coordinator.holding(node.address) as coordinator:
            again = await coordinator.load(5, spec_of(first))
            assert (again.adopted, again.data_port) == (True, one.data_port)
            async with coordinator.ring(again, first.card.digest, 4) as ring_of_one:
                assert await ring_of_one.greedy(*PROMPT) == expected[0]
