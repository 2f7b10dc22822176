"""A worker that is the only stage of its plan, and the links of a coordinator to it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from layerline.errors import (
    LayerlineError,
)
from layerline.frames import Frame, PageRun, Sampling, Span, TensorBytes
from layerline.rpc.links import FrameSender, ResultReceiver
from layerline.rpc.status import call_failure
from layerline.rpc.transport import Transport
from node.worker.ring_service import RingService
from tests.fakes.echo_stage import EchoStage
from tests.fakes.grpc_ring import EPOCH, hello, place, served
from tests.fakes.peers import peer_at

DEADLINE_S = 20.0
FORWARD = "/layerline.rpc.v1.Ring/Forward"
RESULTS = "/layerline.rpc.v1.Ring/Results"


def frame(step: int, *tokens: int) -> Frame:
    data = b"".join(token.to_bytes(4, "little") for token in tokens)
    span = Span(
        sequence=1, start=0, count=len(tokens), pages=(PageRun(first=0, count=9),), draws=1, sampling=Sampling()
    )
    tensor = TensorBytes(dtype="int32", shape=(len(tokens),), data=data)
    return Frame(epoch=EPOCH, step=step, spans=(span,), tensor=tensor)


class Broken:
    """What the watcher of a frame link said."""

    def __init__(self) -> None:
        self._errors: asyncio.Queue[LayerlineError] = asyncio.Queue()
        self.hear = self._errors.put_nowait

    async def error(self) -> LayerlineError:
        return await self._errors.get()


@asynccontextmanager
async def placed(stage: EchoStage | None = None) -> AsyncIterator[tuple[RingService, str]]:
    """A worker that is the only stage of its plan."""
    async with asyncio.timeout(DEADLINE_S), served(stage or EchoStage(last=True), "n0") as (service, address):
        await service.take_place(place(0, 1, None))
        yield service, address


@asynccontextmanager
async def both_ends(address: str) -> AsyncIterator[tuple[FrameSender, ResultReceiver, Broken]]:
    """The coordinator's links to a stage that is the only one."""
    async with AsyncExitStack() as stack:
        broken = Broken()
        results = await ResultReceiver.dial(Transport(), peer_at(address, name="n0"), hello(0))
        stack.push_async_callback(results.close)
        frames = await FrameSender.dial(Transport(), peer_at(address, name="n0"), hello(0), on_broken=broken.hear)
        stack.push_async_callback(frames.close)
        yield frames, results, broken


async def works(address: str) -> None:
    async with both_ends(address) as (frames, results, _):
        await frames.send(frame(1, 6))
        assert (await results.receive()).sampled[0].token_id == 7


async def refusal(call: Any) -> LayerlineError:
    """How a call ended that sent something by hand."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    return await call_failure(call, peer="node n0", node="n0")


async def received_for_ever(results: ResultReceiver) -> None:
    while await results.receive():
        pass


async def send_for_ever(frames: FrameSender, *tokens: int) -> None:
    for step in itertools.count(2):
        await frames.send(frame(step, *tokens))
