"""A whole pipeline in one process over real gRPC streams: workers' services, dialled as daemons have them dial."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

from coordinator.ring import Ring
from layerline.errors import LayerlineError
from layerline.frames import Hello
from layerline.hold import Place
from layerline.rpc.channels import make_server
from layerline.rpc.links import FrameSender, ResultReceiver
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import ring_pb2_grpc
from layerline.version import WIRE_VERSION
from node.worker.ring_service import RingService
from node.worker.stage_compute import OnLoop, RankCompute
from tests.fakes.peers import peer_at

DIGEST = "digest"
EPOCH = 5
PLAN_KEY = b"k" * 16


@asynccontextmanager
async def served(stage: RankCompute, node: str) -> AsyncIterator[tuple[RingService, str]]:
    """A worker's service around `stage`, and its address."""
    service = RingService(OnLoop(stage), Transport(), node=node, model_digest=DIGEST)
    server = make_server()
    ring_pb2_grpc.add_RingServicer_to_server(cast("ring_pb2_grpc.RingServicer", service), server)
    port = Transport().listen(server, "127.0.0.1:0")
    await server.start()
    try:
        yield service, f"127.0.0.1:{port}"
    finally:
        await service.vacate()
        await server.stop(None)


def place(index: int, count: int, next_address: str | None) -> Place:
    """The place of stage `index` of `count`, in the plan that `hello` greets."""
    following = peer_at(next_address, name=f"n{index + 1}") if next_address else None
    return Place(epoch=EPOCH, plan_key=PLAN_KEY, stage_index=index, stage_count=count, next=following)


def hello(index: int) -> Hello:
    """The right greeting of stage `index`."""
    return Hello(
        wire_version=WIRE_VERSION,
        epoch=EPOCH,
        plan_key=PLAN_KEY,
        model_digest=DIGEST,
        stage_index=index,
        sender="test",
    )


@asynccontextmanager
async def grpc_ring(
    computes: Sequence[RankCompute], on_broken: Callable[[LayerlineError], None] = lambda _: None
) -> AsyncIterator[Ring]:
    """The ring through `computes`, bound from the last to the first."""
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(served(compute, f"n{index}")) for index, compute in enumerate(computes)
        ]
        following: str | None = None
        for index in reversed(range(len(workers))):
            service, address = workers[index]
            await service.take_place(place(index, len(workers), following))
            following = address
        yield await stack.enter_async_context(dialled([address for _, address in workers], on_broken))


@asynccontextmanager
async def dialled(addresses: Sequence[str], on_broken: Callable[[LayerlineError], None]) -> AsyncIterator[Ring]:
    """The coordinator's ends of the ring through the stages at `addresses`, which have their places."""
    async with AsyncExitStack() as stack:
        last = len(addresses) - 1
        results = await ResultReceiver.dial(Transport(), peer_at(addresses[last], name=f"n{last}"), hello(last))
        stack.push_async_callback(results.close)
        frames = await FrameSender.dial(Transport(), peer_at(addresses[0], name="n0"), hello(0), on_broken=on_broken)
        stack.push_async_callback(frames.close)
        yield Ring(epoch=EPOCH, frames=frames, results=results, nodes=tuple(f"n{n}" for n in range(len(addresses))))
