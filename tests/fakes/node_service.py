"""A whole node in this process: a real service on a loopback port, with a stage that counts on from the last token.

What a daemon decides is decided by the daemon's own parts; the worker is a `RingService` on a port of its own. A test
says what shall happen at the points "card", "load", "loaded" and "bind" of its life and before each step, and when its
worker or all of it dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc.aio

from layerline.errors import LayerlineError, StageFailedError
from layerline.facts import ModelListing, NodeFacts
from layerline.frames import Frame
from layerline.hold import HEARTBEATS, Heartbeats, HoldCommand, HoldEvent, Place
from layerline.models.card import ModelCard
from layerline.models.expert_placement import ExpertPlacement
from layerline.models.index import index_model
from layerline.models.indexer import OnProgress
from layerline.rpc.channels import ConnectionBounds, make_server
from layerline.rpc.convert import from_union, to_message, to_union
from layerline.rpc.status import stream_handler, unary_handler
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import node_pb2, node_pb2_grpc, ring_pb2_grpc
from layerline.step_result import StepResult
from layerline.version import WIRE_VERSION, __version__
from node.daemon.hold.admission import HoldAdmission
from node.daemon.service import address_of
from node.daemon.stages.keeper import KeeperSettings, StageKeeper
from node.daemon.stages.kept import OnChosenExperts, OnLost
from node.daemon.stages.model_library import OpenedModel
from node.pipe import Placed, Start, Started
from node.worker.ring_service import RingService
from node.worker.stage_compute import OnLoop
from tests.fakes.daemon_parts import FakeEpochs, FakeTimers
from tests.fakes.echo_stage import EchoStage
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.worlds import device

MODEL = "tiny.gguf"
Hook = Callable[[], Awaitable[None]]
StepHook = Callable[[int], None]


def tiny_card(folder: Path, model: TinyModel | None = None, name: str = MODEL, **changes: Any) -> ModelCard:
    """The card of a tiny model, whose files are written to `folder`; `changes` as `write_gguf` has them."""
    path = write_gguf(folder / name, model or TinyModel(layers=6), **changes)
    return index_model(path, name, lambda _done, _total: None)


class CountingStage:
    """An `EchoStage` that asks the node's script before each step."""

    def __init__(self, node: FakeNode, *, last: bool) -> None:
        self._node = node
        self._echo = EchoStage(last=last)

    def run(self, frame: Frame) -> Frame | StepResult:
        if self._node.on_step:
            self._node.on_step(frame.step)
        if self._node.on_frame:
            self._node.on_frame(frame)
        return self._echo.run(frame)


class FakeWorker:
    """A worker as the daemon's keeper uses it, in this process."""

    def __init__(self, node: FakeNode, on_lost: OnLost) -> None:
        self.lost: LayerlineError | None = None
        self.resident_bytes = [1500]
        self._node = node
        self._on_lost = on_lost
        self._server: grpc.aio.Server | None = None
        self._ring: RingService | None = None

    async def start(self, start: Start, on_progress: OnProgress) -> Started:
        on_progress(1, 2)
        await self._node.reach("load")
        on_progress(2, 2)
        last = start.spec.last_layer == self._node.card.spec.layers - 1
        self._ring = RingService(
            OnLoop(CountingStage(self._node, last=last)), Transport(), node=start.node, model_digest=start.spec.digest
        )
        self._server = make_server()
        # The generated class knows only handlers that yield, gRPC also those that write to their context.
        ring_pb2_grpc.add_RingServicer_to_server(cast("ring_pb2_grpc.RingServicer", self._ring), self._server)
        port = Transport().listen(self._server, "127.0.0.1:0")
        await self._server.start()
        await self._node.reach("loaded")
        return Started(port=port, weights_bytes=1000, kv_bytes=500)

    async def place(self, place: Place) -> Placed:
        assert self._ring is not None
        await self._node.reach("bind")
        return Placed(next_address=await self._ring.take_place(place))

    def watch_experts(self, tell: OnChosenExperts) -> None:
        """Says nothing: the models here have none."""

    async def move_experts(self, layer: int, placement: ExpertPlacement, on_taken: Callable[[], None]) -> None:
        raise AssertionError("the models here have no experts")

    async def vacate(self) -> None:
        if self._ring:
            await self._ring.vacate()

    async def stop(self) -> None:
        await self.vacate()
        server, self._server = self._server, None
        if server:
            await server.stop(None)

    async def die(self) -> None:
        """Ends as a killed process does, which the daemon then tells."""
        self.lost = StageFailedError(
            f"The worker of node {self._node.name} was killed (SIGKILL).", node=self._node.name
        )
        server, self._server = self._server, None
        if server:
            await server.stop(None)
        self._on_lost(self.lost)


class FakeNode(node_pb2_grpc.NodeServicer):
    """One node. `hooks` by point are called as its life comes there and may wait, raise or have it die."""

    def __init__(self, name: str, card: ModelCard, *, mib: float = 1024, heartbeats: Heartbeats = HEARTBEATS) -> None:
        self.name = name
        self.card = card
        self.listed: tuple[str, ...] = (card.name,)  # what it calls the model
        self.indexed: set[str] | None = None  # the names by which it was indexed; None: all
        self.hooks: dict[str, Hook] = {}
        self.on_step: StepHook | None = None
        self.on_frame: Callable[[Frame], None] | None = None
        self.change_event: Callable[[node_pb2.HoldEvent], None] = lambda _: None  # what it says on its hold
        self.silent = False
        self.state = "ready"
        self.loads = 0
        self.loading = asyncio.Event()
        self.worker: FakeWorker | None = None
        self.epochs = FakeEpochs()
        self._devices = (device(budget_bytes=int(mib * 2**20)),)
        self._server: grpc.aio.Server | None = None
        self._dying: asyncio.Task[None] | None = None
        self.address = ""
        self.keeper = StageKeeper(
            KeeperSettings(node=name, host="127.0.0.1", keep_alive_s=300.0),
            models=self,
            epochs=self.epochs,
            devices=lambda _loaded: self._devices,
            spawn_worker=self._spawn,
            call_later=FakeTimers().call_later,
        )
        self.admission = HoldAdmission(self.keeper, node=name, node_id=f"id-{name}", heartbeats=heartbeats)

    async def serve(self, port: int = 0, bounds: ConnectionBounds | None = None) -> None:
        """Answers on a port from now on."""
        self._server = make_server(bounds)
        node_pb2_grpc.add_NodeServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{Transport().listen(self._server, f'127.0.0.1:{port}')}"
        await self._server.start()

    async def die(self) -> None:
        """Ends as an unplugged machine does, as far as one process can: no goodbye, worker and all."""
        server, self._server = self._server, None
        if self.worker and self.worker._server:
            await self.worker._server.stop(None)
        if server:
            await server.stop(None)
        await self.keeper.close()

    def die_soon(self) -> None:
        """The same, for where the caller is a part of what dies."""
        self._dying = asyncio.create_task(self.die())

    async def freed(self) -> None:
        """Waits until no coordinator holds it."""
        await self.admission._free.wait()

    async def reach(self, point: str) -> None:
        """Does what the test wants to happen there."""
        hook = self.hooks.get(point)
        if hook:
            await hook()

    async def open(self, name: str, on_progress: OnProgress) -> OpenedModel:
        """The one model there is, as the keeper's library."""
        path = Path("/models") / name
        return OpenedModel(
            name=name,
            digest=self.card.digest,
            spec=self.card.spec,
            tensors=self.card.tensors,
            path=path,
            card_path=path,
        )

    async def _spawn(self, devices: Sequence[str], on_lost: OnLost) -> FakeWorker:
        self.loads += 1
        self.loading.set()
        self.worker = FakeWorker(self, on_lost)
        return self.worker

    @unary_handler
    async def Describe(self, request: Any, context: Any) -> node_pb2.NodeFacts:
        listings = [
            ModelListing(
                name=name,
                digest=self.card.digest if self.indexed is None or name in self.indexed else "",
                size_bytes=self.card.size_bytes,
            )
            for name in self.listed
        ]
        facts = NodeFacts(
            node_id=f"id-{self.name}",
            name=self.name,
            version=__version__,
            wire_version=WIRE_VERSION,
            state="draining" if self.admission.draining else self.state,
            addresses=(self.address,),
            devices=self._devices,
            models=tuple(listings),
            loaded=self.keeper.loaded,
            held_by=self.admission.holder,
            last_epoch=self.epochs.epoch,
            models_folder="/models",
        )
        return to_message(facts, node_pb2.NodeFacts)

    @stream_handler
    async def OpenModel(self, request: Any, context: Any) -> Any:
        await self.reach("card")
        yield node_pb2.OpenModelEvent(progress=node_pb2.IndexProgress(done_bytes=1, total_bytes=1))
        card = self.card.to_bytes()
        half = len(card) // 2
        for chunk in (card[:half], card[half:]):
            yield node_pb2.OpenModelEvent(card_chunk=chunk)

    @unary_handler
    async def Hold(self, requests: Any, context: Any) -> None:  # type: ignore[override]  # a handler that writes to its context
        await self.admission.attend(_Wire(self, context), address_of(context.peer()))


class _Wire:
    """A coordinator's stream, as the daemon's hold uses it; nothing goes out while the node is silent."""

    def __init__(self, node: FakeNode, context: Any) -> None:
        self._node = node
        self._context = context

    async def read(self) -> HoldCommand | None:
        message = await self._context.read()
        return None if message is grpc.aio.EOF else cast("HoldCommand", from_union(HoldCommand, message))

    async def write(self, event: HoldEvent) -> None:
        if not self._node.silent:
            message = to_union(event, node_pb2.HoldEvent)
            self._node.change_event(message)
            await self._context.write(message)


@asynccontextmanager
async def nodes_of(
    card: ModelCard, *names: str, mib: float = 1024, heartbeats: Heartbeats = HEARTBEATS
) -> AsyncIterator[list[FakeNode]]:
    """Nodes of those names that answer, all with the model of `card`."""
    nodes = [FakeNode(name, card, mib=mib, heartbeats=heartbeats) for name in names]
    await asyncio.gather(*(node.serve() for node in nodes))
    try:
        yield nodes
    finally:
        await asyncio.gather(*(node.die() for node in nodes))
