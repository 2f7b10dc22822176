"""A worker's side of the ring against neighbours that come at the wrong time, say the wrong thing, or leave."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.errors import (
    DeadlineError,
    LayerlineError,
    ModelMismatchError,
    NodeLostError,
    ProtocolError,
    StageFailedError,
)
from layerline.rpc import links
from layerline.rpc.convert_frames import hello_to_message
from layerline.rpc.links import FrameSender, ResultReceiver
from layerline.rpc.status import error_from_detail, error_from_rpc
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import ring_pb2, ring_pb2_grpc
from layerline.step_result import StepResult
from node.worker.ring_service import ResultStream
from tests.fakes.complaints import complaints
from tests.fakes.echo_stage import EchoStage
from tests.fakes.grpc_ring import hello, place, served
from tests.fakes.peers import peer_at
from tests.fakes.worker_ring import (
    DEADLINE_S,
    FORWARD,
    RESULTS,
    Broken,
    both_ends,
    frame,
    placed,
    received_for_ever,
    refusal,
    send_for_ever,
    works,
)


async def test_a_greeting_before_any_place_is_refused_and_does_no_harm() -> None:
    async with asyncio.timeout(DEADLINE_S), served(EchoStage(last=True), "n0") as (service, address):
        results = links.ResultReceiver.dial(Transport(), peer_at(address, name="n0"), hello(0))
        for dial in (results, _frames_to(address)):
            with pytest.raises(ProtocolError, match="no place in a plan"):
                await dial
        await service.take_place(place(0, 1, None))
        await works(address)


async def _frames_to(address: str) -> FrameSender:
    return await FrameSender.dial(Transport(), peer_at(address, name="n0"), hello(0), on_broken=lambda _: None)


async def test_a_place_taken_anew_works_after_the_former_coordinator_vanished() -> None:
    async with placed() as (service, address):
        for _ in range(3):
            await works(address)
            await service.take_place(place(0, 1, None))


async def test_a_late_greeting_hears_what_ended_the_place() -> None:
    async with placed(EchoStage(last=True, fails_at=1)) as (_, address):
        async with both_ends(address) as (frames, results, broken):
            await frames.send(frame(1, 6))
            assert isinstance(await broken.error(), StageFailedError)
            with pytest.raises(StageFailedError):
                await results.receive()
        with pytest.raises(StageFailedError, match="out of memory"):
            await _frames_to(address)


async def test_a_neighbour_that_left_is_not_taken_for_a_port_that_nobody_has() -> None:
    async with placed() as (_, address):
        frames = await _frames_to(address)
        results = await ResultReceiver.dial(Transport(), peer_at(address, name="n0"), hello(0))
        await frames.close()
        with pytest.raises(NodeLostError, match="neighbour"):
            await results.receive()
        with pytest.raises(NodeLostError, match="neighbour"):
            await _frames_to(address)
        await results.close()


async def test_the_stages_behind_a_failed_one_are_told_at_once() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        stages = [EchoStage(last=False, fails_at=1), EchoStage(last=False), EchoStage(last=True)]
        workers = [await stack.enter_async_context(served(stage, f"n{n}")) for n, stage in enumerate(stages)]
        following = None
        for index in (2, 1, 0):
            await workers[index][0].take_place(place(index, 3, following))
            following = workers[index][1]
        broken = Broken()
        results = await ResultReceiver.dial(Transport(), peer_at(workers[2][1], name="n2"), hello(2))
        stack.push_async_callback(results.close)
        frames = await FrameSender.dial(Transport(), peer_at(workers[0][1], name="n0"), hello(0), on_broken=broken.hear)
        stack.push_async_callback(frames.close)
        await frames.send(frame(1, 6))
        failure = await broken.error()
        with pytest.raises(NodeLostError):
            await results.receive()
    assert isinstance(failure, StageFailedError)
    assert failure.node == "n0"


async def test_frames_before_results_are_asked_for_are_refused() -> None:
    async with placed() as (_, address):
        broken = Broken()
        frames = await FrameSender.dial(Transport(), peer_at(address, name="n0"), hello(0), on_broken=broken.hear)
        await frames.send(frame(1, 6))
        assert "before the coordinator had asked for results" in str(await broken.error())
        await frames.close()


async def test_a_second_hello_in_mid_stream_ends_the_place() -> None:
    async with placed() as (_, address), Transport().channel(address) as channel:
        call = ring_pb2_grpc.RingStub(channel).Forward()
        greeting = ring_pb2.ForwardMessage(hello=hello_to_message(hello(0)))
        await call.write(greeting)
        await call.read()
        await call.write(greeting)
        error = await refusal(call)
    assert isinstance(error, ProtocolError)
    assert "second hello" in str(error)


async def test_a_stream_ended_in_order_is_an_end_too() -> None:
    async with placed() as (service, address), Transport().channel(address) as channel:
        results = await ResultReceiver.dial(Transport(), peer_at(address, name="n0"), hello(0))
        call = ring_pb2_grpc.RingStub(channel).Forward()
        await call.write(ring_pb2.ForwardMessage(hello=hello_to_message(hello(0))))
        await call.read()
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK
        with pytest.raises(NodeLostError):
            await results.receive()
        await results.close()
        await service.take_place(place(0, 1, None))
        await works(address)


async def test_results_are_the_last_stages() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        first, first_address = await stack.enter_async_context(served(EchoStage(last=False), "n0"))
        last, last_address = await stack.enter_async_context(served(EchoStage(last=True), "n1"))
        await last.take_place(place(1, 2, None))
        await first.take_place(place(0, 2, last_address))
        with pytest.raises(ProtocolError, match="Only the last stage"):
            await ResultReceiver.dial(Transport(), peer_at(first_address, name="n0"), hello(0))


async def test_junk_bytes_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    async with placed() as (_, address), Transport().channel(address) as channel:
        for junk in (b"", b"\xff" * 9, b"\x0a\x03abc", b"\x12\x00" * 5):
            streams: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(FORWARD)
            forward = streams()
            await forward.write(junk)
            assert isinstance(await refusal(forward), ProtocolError)
            results: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(RESULTS)
            assert await results(junk).code() is not grpc.StatusCode.OK
        await works(address)


@given(st.lists(st.binary(max_size=64), min_size=1, max_size=3))
@settings(max_examples=25)
def test_fuzzed_messages_after_a_good_hello_end_in_a_protocol_error(messages: list[bytes]) -> None:
    async def exchange() -> LayerlineError:
        async with placed() as (_, address), Transport().channel(address) as channel:
            streams: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(FORWARD)
            call = streams()
            await call.write(ring_pb2.ForwardMessage(hello=hello_to_message(hello(0))).SerializeToString())
            await call.read()
            last_word = asyncio.create_task(call.read())  # before the end, as the end in mid-write would hide it
            await asyncio.sleep(0)
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                for message in messages:
                    await call.write(message)
            word = await last_word
            assert isinstance(word, bytes)
            return error_from_detail(ring_pb2.Accepted.FromString(word).error)

    assert isinstance(asyncio.run(exchange()), ProtocolError)


async def test_another_model_is_named_from_both_sides() -> None:
    async with asyncio.timeout(DEADLINE_S), served(EchoStage(last=True), "n0") as (_, address):
        async with Transport().channel(address) as channel:
            greeting = hello_to_message(hello(0))
            greeting.model_digest = "theirs"
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await ring_pb2_grpc.RingStub(channel).Results(greeting).read()
        error = error_from_rpc(raised.value, peer="node n0", node="n0")
    assert isinstance(error, ModelMismatchError)
    assert "theirs" in str(error)


class Stuck:
    """The call of a coordinator that reads nothing."""

    async def write(self, message: ring_pb2.StepResult) -> None:
        await asyncio.get_running_loop().create_future()


async def test_a_coordinator_that_takes_no_results_is_not_waited_for() -> None:
    stream = ResultStream(deadline_s=0.01, end_deadline_s=0.01)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(DeadlineError, match="took no result"):
            await stream.open(Stuck())  # type: ignore[arg-type]  # of a context, only `write` is used
        with pytest.raises(DeadlineError, match="took no result"):
            await stream.send(StepResult(epoch=1, step=1))
        await stream.close()


async def test_a_place_taken_away_in_the_moment_it_is_greeted_is_told() -> None:
    async with placed() as (service, address):
        for _ in range(100):
            results = await ResultReceiver.dial(Transport(), peer_at(address, name="n0"), hello(0))
            frames = await _frames_to(address)
            broken = asyncio.create_task(send_for_ever(frames, 6))
            await service.take_place(place(0, 1, None))
            for ends in (received_for_ever(results), broken):
                with pytest.raises(NodeLostError):
                    await ends
            await frames.close()
            await results.close()


@pytest.mark.parametrize("order", ["frames first", "results first", "both at once"])
async def test_a_coordinator_that_leaves_in_mid_answer_is_no_fault(
    order: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with placed() as (service, address):
        for read in range(6):
            frames = await _frames_to(address)
            results = await ResultReceiver.dial(Transport(), peer_at(address, name="n0"), hello(0))
            sending = asyncio.create_task(send_for_ever(frames, *range(300)))
            for _ in range(read):
                await results.receive()
            closing = [frames.close(), results.close()]
            if order == "both at once":
                await asyncio.gather(*closing)
            else:
                for close in closing if order == "frames first" else reversed(closing):
                    await close
            await asyncio.gather(sending, return_exceptions=True)
            await service.take_place(place(0, 1, None))
            await works(address)
            await service.take_place(place(0, 1, None))
    assert complaints(caplog) == []
