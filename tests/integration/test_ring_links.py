"""The links of the ring: messages too large, sending that fails midway, and finding the other end."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack

import grpc
import grpc.aio
import pytest

from layerline.errors import (
    NodeLostError,
    NodeUnreachableError,
    ProtocolError,
    StageFailedError,
)
from layerline.frames import Frame, PageRun, Sampling, Span, TensorBytes
from layerline.rpc.channels import MAX_MESSAGE_BYTES
from layerline.rpc.convert_frames import frame_to_message, hello_to_message
from layerline.rpc.links import FrameSender
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import ring_pb2, ring_pb2_grpc
from tests.fakes.echo_stage import EchoStage
from tests.fakes.grpc_ring import EPOCH, hello, place, served
from tests.fakes.peers import peer_at
from tests.fakes.worker_ring import DEADLINE_S, both_ends, frame, placed, refusal, send_for_ever, works


async def test_a_message_over_the_limit_ends_the_place_and_not_the_worker() -> None:
    async with placed() as (service, address):
        channel = grpc.aio.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])
        async with channel:
            call = ring_pb2_grpc.RingStub(channel).Forward()
            await call.write(ring_pb2.ForwardMessage(hello=hello_to_message(hello(0))))
            await call.read()
            huge = frame_to_message(frame(1, 6))
            huge.frame.tensor.data = bytes(MAX_MESSAGE_BYTES)
            await call.write(huge)
            assert "too large" in str(await refusal(call))
        await service.take_place(place(0, 1, None))
        await works(address)


async def test_a_frame_too_large_to_send_is_named_at_the_sender() -> None:
    async with placed() as (_, address), both_ends(address) as (frames, results, _):
        penalised = tuple(range(1 << 22))
        span = Span(
            sequence=1,
            start=0,
            count=1,
            pages=(PageRun(first=0, count=1),),
            draws=1,
            sampling=Sampling(prompt_ids=penalised),
        )
        tensor = TensorBytes(dtype="int32", shape=(1,), data=bytes(4))
        with pytest.raises(ProtocolError, match="too large to send") as raised:
            await frames.send(Frame(epoch=EPOCH, step=1, spans=(span,), tensor=tensor))
        assert raised.value.node == "n0"
        await frames.send(frame(1, 6))
        assert (await results.receive()).step == 1


async def test_a_failure_in_the_middle_of_sending_is_still_named_at_the_sender() -> None:
    for fails_at in range(2, 6):
        async with (
            placed(EchoStage(last=True, fails_at=fails_at)) as (_, address),
            both_ends(address) as (frames, _, broken),
        ):
            with pytest.raises(StageFailedError, match="out of memory"):
                await send_for_ever(frames, *range(2000))
            assert isinstance(await broken.error(), StageFailedError)


async def test_a_connection_that_ends_in_the_middle_of_sending_is_a_lost_node() -> None:
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as worker:
        service, address = await worker.enter_async_context(served(EchoStage(last=True), "n0"))
        await service.take_place(place(0, 1, None))
        async with both_ends(address) as (frames, _, _):
            sending = asyncio.create_task(send_for_ever(frames, 6))
            await asyncio.sleep(0)
            await worker.aclose()
            with pytest.raises(NodeLostError):
                await sending


async def test_an_address_of_no_ring_is_told_from_a_silent_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        nobody = peer_at(address, "127.0.0.1:9", name="n0")
        with pytest.raises(NodeUnreachableError) as raised:
            await FrameSender.dial(Transport(), nobody, hello(0), on_broken=lambda _: None, deadline_s=0.2)
    assert f"{address}: no answer in 0.1 s" in str(raised.value)
    assert "127.0.0.1:9: " in str(raised.value)
    assert raised.value.node == "n0"


async def test_another_machines_stage_at_the_first_address_is_passed_over() -> None:
    async with placed() as (_, address), served(EchoStage(last=True), "stranger") as (_, elsewhere):
        frames = await FrameSender.dial(
            Transport(), peer_at(elsewhere, address, name="n0"), hello(0), on_broken=lambda _: None
        )
        assert frames.address == address
        await frames.close()


async def test_where_every_address_refuses_the_first_refusal_is_told() -> None:
    async with served(EchoStage(last=True), "stranger") as (_, elsewhere):
        with pytest.raises(ProtocolError, match="no place in a plan"):
            await FrameSender.dial(
                Transport(), peer_at(elsewhere, "127.0.0.1:9", name="n0"), hello(0), on_broken=lambda _: None
            )


async def test_the_second_address_is_used_if_nobody_is_at_the_first() -> None:
    async with placed() as (_, address):
        frames = await FrameSender.dial(
            Transport(), peer_at("127.0.0.1:9", address, name="n0"), hello(0), on_broken=lambda _: None
        )
        assert frames.address == address
        await frames.close()
        await frames.close()
