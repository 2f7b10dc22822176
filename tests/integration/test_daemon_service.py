"""A node's service over a real connection: held, loaded, broken off, killed and shouted at, and alive after it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest

from coordinator.node_client import NodeClient
from coordinator.node_hold import hold
from layerline.addresses import split_address
from layerline.errors import (
    LayerlineError,
    ModelNotFoundError,
    NodeHeldError,
    ProtocolError,
    StageFailedError,
    WireVersionError,
)
from layerline.hold import (
    Failed,
    Heartbeat,
    HoldCommand,
    HoldEvent,
    HoldHello,
    Load,
    LoadProgress,
    Unload,
    Unloaded,
    Welcome,
)
from layerline.rpc.convert import from_union, to_union
from layerline.rpc.status import call_failure
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import node_pb2, node_pb2_grpc
from layerline.version import WIRE_VERSION
from tests.fakes.daemon_parts import place_of, stage_spec
from tests.fakes.daemon_server import ServedNode, served_node
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.peers import peer_at

DEADLINE_S = 20


@pytest.fixture
async def node(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ServedNode]:
    async with asyncio.timeout(DEADLINE_S), served_node(tmp_path, getattr(request, "param", "good")) as node:
        yield node
    assert workers() == []


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]


class Caller:
    """The coordinator's end of a hold, message by message."""

    def __init__(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        self.call = call

    async def say(self, command: HoldCommand) -> None:
        await self.call.write(to_union(command, node_pb2.HoldCommand))

    async def hear(self, *, skip: tuple[type, ...] = (Heartbeat, LoadProgress)) -> HoldEvent:
        while True:
            message = await self.call.read()
            assert isinstance(message, node_pb2.HoldEvent)
            event: HoldEvent = from_union(HoldEvent, message)
            if not isinstance(event, skip):
                return event

    async def failure(self) -> LayerlineError:
        return await call_failure(self.call, peer="the node")


@asynccontextmanager
async def calling(node: ServedNode) -> AsyncIterator[Caller]:
    async with Transport().channel(node.address) as channel:
        call = node_pb2_grpc.NodeStub(channel).Hold()
        try:
            yield Caller(call)
        finally:
            call.cancel()


@asynccontextmanager
async def holding(node: ServedNode) -> AsyncIterator[Caller]:
    async with calling(node) as caller:
        await caller.say(HoldHello.of("desk"))
        assert isinstance(await caller.hear(), Welcome)
        yield caller


async def test_a_coordinator_holds_loads_binds_and_the_next_one_adopts(node: ServedNode) -> None:
    progress: list[tuple[int, int]] = []
    async with hold(
        Transport(), peer_at(node.address, name="kitchen"), hello=HoldHello.of("desk"), on_lost=_unexpected
    ) as session:
        loaded = await session.load(1, stage_spec(), lambda done, total: progress.append((done, total)))
        assert (loaded.data_port, loaded.adopted, progress[-1]) == (4711, False, (1000, 1000))
        address = await session.bind(1, place_of(1))
        assert address == ""
        facts = await NodeClient(Transport()).describe(node.address)
        assert facts.held_by is not None
        assert (facts.held_by.coordinator, split_address(facts.held_by.address)[0]) == ("desk", "127.0.0.1")
        assert facts.loaded[0].spec == stage_spec()
    async with hold(
        Transport(), peer_at(node.address, name="kitchen"), hello=HoldHello.of("other"), on_lost=_unexpected
    ) as session:
        assert session.welcome.last_epoch == 1
        assert (await session.load(1, stage_spec(), lambda _done, _total: None)).adopted
        await session.unload(1)
        assert workers() == []


def _unexpected(error: LayerlineError) -> None:
    raise AssertionError(error)


async def test_a_second_coordinator_is_told_who_has_the_node(node: ServedNode) -> None:
    async with holding(node):
        with pytest.raises(NodeHeldError, match=r"kitchen is held by the coordinator desk at 127\.0\.0\.1:\d+"):
            async with hold(
                Transport(), peer_at(node.address, name="kitchen"), hello=HoldHello.of("late"), on_lost=_unexpected
            ):
                pass
    async with holding(node):
        pass


@pytest.mark.parametrize(
    ("first", "error", "words"),
    [
        (
            to_union(replace(HoldHello.of("new"), wire_version=77), node_pb2.HoldCommand),
            WireVersionError,
            f"version 77, node kitchen speaks {WIRE_VERSION}",
        ),
        (to_union(Unload(command=1, stage=1), node_pb2.HoldCommand), ProtocolError, "not a hello"),
        (node_pb2.HoldCommand(), ProtocolError, "holds nothing"),
        (node_pb2.HoldCommand(hold_hello=node_pb2.HoldHello(wire_version=1)), ProtocolError, "coordinator name"),
    ],
)
async def test_a_hello_that_cannot_be_is_refused_with_its_reason(
    node: ServedNode, first: node_pb2.HoldCommand, error: type[LayerlineError], words: str
) -> None:
    async with calling(node) as caller:
        await caller.call.write(first)
        failure = await caller.failure()
        assert isinstance(failure, error)
        assert words in failure.message
    async with holding(node):
        pass


async def test_a_command_that_is_no_command_ends_the_hold_and_not_the_node(node: ServedNode) -> None:
    async with holding(node) as caller:
        await caller.call.write(node_pb2.HoldCommand(load=node_pb2.Load(command=1)))
        assert isinstance(await caller.failure(), ProtocolError)
    async with holding(node):
        pass


@pytest.mark.parametrize(
    "junk", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 4096, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096]
)
async def test_junk_on_the_port_hurts_nobody(node: ServedNode, junk: bytes) -> None:
    async with holding(node) as caller:
        host, port = split_address(node.address)
        _, writer = await asyncio.open_connection(host, port)
        writer.write(junk)
        await writer.drain()
        writer.close()
        await caller.say(Unload(command=1, stage=1))
        assert await caller.hear() == Unloaded(command=1)


async def test_junk_in_a_call_is_a_status_and_hurts_nobody(node: ServedNode) -> None:
    async with Transport().channel(node.address) as channel:
        hold: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream("/layerline.rpc.v1.Node/Hold")
        raw = hold()
        await raw.write(b"\xff" * 100)
        assert await raw.code() is not grpc.StatusCode.OK
    async with holding(node):
        pass


async def test_a_killed_worker_is_told_at_once_and_the_node_loads_again(node: ServedNode) -> None:
    lost: asyncio.Future[LayerlineError] = asyncio.get_running_loop().create_future()
    async with hold(
        Transport(), peer_at(node.address, name="kitchen"), hello=HoldHello.of("desk"), on_lost=lost.set_result
    ) as session:
        await session.load(1, stage_spec(), lambda _done, _total: None)
        (worker,) = workers()
        worker.send_signal(signal.SIGKILL)
        error = await lost
    assert isinstance(error, StageFailedError)
    assert "kitchen was killed (SIGKILL), perhaps because the machine ran out of memory" in error.message
    async with hold(
        Transport(), peer_at(node.address, name="kitchen"), hello=HoldHello.of("desk"), on_lost=_unexpected
    ) as session:
        assert not (await session.load(1, stage_spec(), lambda _done, _total: None)).adopted


@pytest.mark.parametrize("node", ["dies"], indirect=True)
async def test_a_worker_that_dies_while_loading_fails_the_command_and_not_the_hold(node: ServedNode) -> None:
    async with holding(node) as caller:
        await caller.say(Load(command=1, stage=1, spec=stage_spec()))
        failed = await caller.hear()
        assert isinstance(failed, Failed)
        assert "exit code 3" in failed.error.message
        assert failed.error.node == "kitchen"
        await caller.say(Unload(command=2, stage=1))
        assert await caller.hear() == Unloaded(command=2)


@pytest.mark.parametrize("node", ["dawdles"], indirect=True)
async def test_an_unload_cancels_a_load(node: ServedNode) -> None:
    async with holding(node) as caller:
        await caller.say(Load(command=1, stage=1, spec=stage_spec()))
        assert isinstance(await caller.hear(skip=(Heartbeat,)), LoadProgress)
        await caller.say(Unload(command=2, stage=1))
        assert isinstance(await caller.hear(), Failed)
        assert await caller.hear() == Unloaded(command=2)
        assert workers() == []


@pytest.mark.parametrize("node", ["dawdles"], indirect=True)
async def test_a_stream_that_breaks_while_loading_ends_the_worker(node: ServedNode) -> None:
    async with holding(node) as caller:
        await caller.say(Load(command=1, stage=1, spec=stage_spec()))
        assert isinstance(await caller.hear(skip=(Heartbeat,)), LoadProgress)
        assert len(workers()) == 1
    await node.admission.drain(DEADLINE_S)
    assert workers() == []


async def test_a_model_is_opened_over_the_wire(node: ServedNode, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    write_gguf(tmp_path / "models" / "tiny.gguf", TinyModel())
    progress: list[tuple[int, int]] = []
    card = await NodeClient(Transport()).open_model(
        peer_at(node.address, name="kitchen"), "tiny", lambda done, total: progress.append((done, total))
    )
    assert (card.name, card.spec.layers) == ("tiny", 2)
    (listing,) = (await NodeClient(Transport()).describe(node.address)).models
    assert listing.digest == card.digest
    with pytest.raises(ModelNotFoundError, match=r"tiny\.gguf"):
        await NodeClient(Transport()).open_model(
            peer_at(node.address, name="kitchen"), "other", lambda _done, _total: None
        )
    with pytest.raises(ProtocolError, match="model name"):
        await NodeClient(Transport()).open_model(peer_at(node.address, name="kitchen"), "", lambda _done, _total: None)


async def test_a_peer_of_another_wire_version_may_ask_what_the_node_is(node: ServedNode) -> None:
    async with Transport().channel(node.address) as channel:
        facts = await node_pb2_grpc.NodeStub(channel).Describe(node_pb2.DescribeRequest(wire_version=77))
    assert (facts.name, facts.wire_version) == ("kitchen", WIRE_VERSION)
