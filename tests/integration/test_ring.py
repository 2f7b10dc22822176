"""The ring over real gRPC streams, with stages that only pass rows on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from coordinator.ring import Ring
from layerline.errors import (
    LayerlineError,
    ModelMismatchError,
    NodeLostError,
    NodeUnreachableError,
    ProtocolError,
    StageFailedError,
    WireVersionError,
)
from layerline.frames import Frame, Hello, PageRun, Sampling, Span, TensorBytes
from layerline.rpc.links import FrameSender, ResultReceiver
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import ring_pb2, ring_pb2_grpc
from tests.fakes.echo_stage import EchoStage
from tests.fakes.grpc_ring import EPOCH, grpc_ring, hello, place, served
from tests.fakes.peers import peer_at

DEADLINE_S = 20.0


def frame(step: int, tokens: list[int], epoch: int = EPOCH) -> Frame:
    data = b"".join(token.to_bytes(4, "little") for token in tokens)
    span = Span(
        sequence=1, start=0, count=len(tokens), pages=(PageRun(first=0, count=9),), draws=1, sampling=Sampling()
    )
    return Frame(
        epoch=epoch, step=step, spans=(span,), tensor=TensorBytes(dtype="int32", shape=(len(tokens),), data=data)
    )


class TwoStages:
    """Two stages bound into a ring, the coordinator's ends of it, and what stage 0's stream said at its end."""

    def __init__(self, ring: Ring, broken: asyncio.Future[LayerlineError]) -> None:
        self.frames = ring.frames
        self.results = ring.results
        self.broken = broken


@asynccontextmanager
async def two_stages(first: EchoStage, last: EchoStage) -> AsyncIterator[TwoStages]:
    broken: asyncio.Future[LayerlineError] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(DEADLINE_S), grpc_ring([first, last], broken.set_result) as ring:
        yield TwoStages(ring, broken)


async def test_steps_go_round_in_order() -> None:
    first, last = EchoStage(last=False), EchoStage(last=True)
    async with two_stages(first, last) as ring:
        for step in range(1, 30):
            await ring.frames.send(frame(step, [3, step]))
        results = [await ring.results.receive() for _ in range(1, 30)]
    assert [result.step for result in results] == list(range(1, 30))
    assert [result.sampled[0].token_id for result in results] == [step + 1 for step in range(1, 30)]
    assert [timing.stage_index for timing in results[0].timings] == [0, 1]
    assert first.steps == last.steps


async def test_a_failing_stage_is_named_at_both_ends() -> None:
    async with two_stages(EchoStage(last=False), EchoStage(last=True, fails_at=2)) as ring:
        await ring.frames.send(frame(1, [1]))
        await ring.results.receive()
        await ring.frames.send(frame(2, [1]))
        upstream = await ring.broken
        with pytest.raises(StageFailedError) as downstream:
            await ring.results.receive()
    assert isinstance(upstream, StageFailedError)
    assert upstream.node == downstream.value.node == "n1"
    assert "out of memory" in str(upstream)


@pytest.mark.parametrize(
    ("bad", "words"),
    [(frame(1, [1], epoch=4), "epoch 4"), (frame(0, [1]), "Step 0 came after step 1")],
)
async def test_a_frame_of_another_epoch_or_order_is_refused(bad: Frame, words: str) -> None:
    async with two_stages(EchoStage(last=False), EchoStage(last=True)) as ring:
        await ring.frames.send(frame(1, [1]))
        await ring.results.receive()
        await ring.frames.send(bad)
        error = await ring.broken
    assert isinstance(error, ProtocolError)
    assert words in str(error)


async def test_a_stage_given_another_place_ends_the_ring() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        service, address = await stack.enter_async_context(served(EchoStage(last=True), "n0"))
        await service.take_place(place(0, 1, None))
        broken: asyncio.Future[LayerlineError] = asyncio.get_running_loop().create_future()
        sender = await FrameSender.dial(Transport(), peer_at(address, name="n0"), hello(0), on_broken=broken.set_result)
        stack.push_async_callback(sender.close)
        await service.take_place(place(0, 1, None))
        assert isinstance(await broken, NodeLostError)
        with pytest.raises(LayerlineError):
            await sender.send(frame(1, [1]))


async def test_leaving_the_ring_frees_the_place_for_no_one_else() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        service, address = await stack.enter_async_context(served(EchoStage(last=True), "n0"))
        await service.take_place(place(0, 1, None))
        sender = await FrameSender.dial(
            Transport(), peer_at(address, name="n0"), hello(0), on_broken=lambda error: None
        )
        with pytest.raises(ProtocolError, match="frame stream already"):
            await FrameSender.dial(Transport(), peer_at(address, name="n0"), hello(0), on_broken=lambda error: None)
        await sender.close()


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (replace(hello(0), wire_version=99), WireVersionError, "99"),
        (replace(hello(0), model_digest="other"), ModelMismatchError, "other"),
        (replace(hello(0), epoch=6), ProtocolError, "Plan 6"),
        (replace(hello(0), plan_key=b"x" * 16), ProtocolError, "not the one"),
        (replace(hello(0), stage_index=1), ProtocolError, "Stage 1"),
    ],
)
async def test_a_wrong_hello_is_refused(wrong: Hello, error: type[LayerlineError], words: str) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        service, address = await stack.enter_async_context(served(EchoStage(last=True), "n0"))
        await service.take_place(place(0, 1, None))
        with pytest.raises(error, match=words):
            await FrameSender.dial(Transport(), peer_at(address, name="n0"), wrong, on_broken=lambda error: None)
        with pytest.raises(error, match=words):
            await ResultReceiver.dial(Transport(), peer_at(address, name="n0"), wrong)
        accepted = await FrameSender.dial(
            Transport(), peer_at(address, name="n0"), hello(0), on_broken=lambda error: None
        )
        await accepted.close()


async def test_a_frame_in_place_of_a_hello_is_refused() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        service, address = await stack.enter_async_context(served(EchoStage(last=True), "n0"))
        await service.take_place(place(0, 1, None))
        channel = await stack.enter_async_context(Transport().channel(address))
        call = ring_pb2_grpc.RingStub(channel).Forward()
        await call.write(ring_pb2.ForwardMessage(frame=ring_pb2.Frame(step=1)))
        assert "not a hello" in await call.details()


async def test_nobody_at_the_address_is_told_apart_from_a_refusal() -> None:
    with pytest.raises(NodeUnreachableError, match=r"127\.0\.0\.1:9"):
        await FrameSender.dial(Transport(), peer_at("127.0.0.1:9", name="n0"), hello(0), on_broken=lambda error: None)
