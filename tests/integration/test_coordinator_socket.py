"""The coordinator's service as clients meet it: an embedded coordinator, asked over its socket."""

from __future__ import annotations

import asyncio
import math
import os
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from coordinator.embedded import embedded_coordinator
from coordinator.text.tokenizer import TextTokenizer
from layerline.async_client import AsyncClient
from layerline.errors import (
    InternalError,
    LayerlineError,
    ModelNotFoundError,
    NoNodesError,
    PromptTooLongError,
    RequestError,
    StageFailedError,
)
from layerline.models.card import ModelCard
from layerline.reports import Ready
from layerline.rpc.status import error_from_rpc
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import common_pb2, coordinator_pb2, coordinator_pb2_grpc, node_pb2
from tests.fakes.complaints import complaints
from tests.fakes.coordinators import DEADLINE_S, settings_for, split
from tests.fakes.node_service import MODEL, FakeNode, nodes_of

LAYERS = split("a", "b").layers


@asynccontextmanager
async def client_of(card: ModelCard) -> AsyncIterator[tuple[AsyncClient, list[FakeNode]]]:
    """A client of a coordinator over two nodes, which are free soon after it."""
    async with asyncio.timeout(DEADLINE_S), nodes_of(card, "a", "b") as nodes:
        async with embedded_coordinator(settings_for(nodes)) as embedded, AsyncClient(embedded.address) as client:
            yield client, nodes
        await asyncio.gather(*(node.freed() for node in nodes))


async def test_a_session_from_nothing_to_an_answer(card: ModelCard) -> None:
    async with client_of(card) as (client, _):
        assert (await client.describe()).model == ""
        assert (await client.plan("tiny", layers=LAYERS)).pipelines[0].epoch == 0
        events = [event async for event in client.prepare("tiny", layers=LAYERS)]
        assert isinstance(events[-1], Ready)
        assert (await client.describe()).model == MODEL
        assert [node.name for node in (await client.nodes()).nodes] == ["a", "b"]
        assert [model.loaded for model in (await client.models()).models] == [True]
        assert (await client.generate("a", max_tokens=3)).text == "bcd"
        assert (await client.chat([{"role": "user", "content": "hi"}], max_tokens=1)).finished.finish_reason == "length"
        assert [one.text for one in (await client.generate("a", max_tokens=3, n=3)).others] == ["bcd"] * 2


async def test_refusals_keep_their_class_over_the_socket(card: ModelCard) -> None:
    async with client_of(card) as (client, _):
        with pytest.raises(RequestError, match="No model is loaded"):
            await client.generate("a")
        with pytest.raises(ModelNotFoundError):
            await client.plan("nothing")
        async for _ in client.prepare("tiny", layers=LAYERS):
            pass
        with pytest.raises(PromptTooLongError):
            await client.generate("a" * 300)


async def test_nobody_there_over_the_socket(card: ModelCard) -> None:
    async with nodes_of(card, "a") as nodes:
        settings = settings_for(nodes)
    async with embedded_coordinator(settings) as embedded, AsyncClient(embedded.address) as client:
        with pytest.raises(NoNodesError):
            await client.plan("tiny")


@pytest.mark.more
async def test_a_stage_that_fails_is_named_over_the_socket(card: ModelCard) -> None:
    async with client_of(card) as (client, nodes):
        async for _ in client.prepare("tiny", layers=LAYERS):
            pass

        def fail(step: int) -> None:
            raise RuntimeError("out of memory")

        nodes[1].on_step = fail
        with pytest.raises(StageFailedError, match="out of memory") as raised:
            await client.generate("a")
        assert raised.value.node == "b"
        nodes[1].on_step = None
        assert (await client.generate("a", max_tokens=2)).text == "bc"


async def test_leaving_a_load_ends_it_on_the_nodes(card: ModelCard) -> None:
    async with client_of(card) as (client, nodes):

        async def for_ever() -> None:
            await asyncio.get_running_loop().create_future()

        nodes[1].hooks["load"] = for_ever
        async with client.prepare("tiny", layers=LAYERS) as events:
            await anext(events)
            await nodes[1].loading.wait()
        await asyncio.gather(*(node.freed() for node in nodes))
        nodes[1].hooks.clear()
        assert (await client.generate("a", model="tiny", max_tokens=2)).text == "bc"


async def test_leaving_an_answer_is_no_fault(card: ModelCard, caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(card) as (client, _):
        async for _ in client.prepare("tiny", layers=LAYERS):
            pass
        for count in range(4):
            async with client.generate("a", stream=True) as pieces:
                for _ in range(count):
                    await anext(pieces)
            async with client.generate("a", stream=True, n=4) as pieces:
                for _ in range(count):
                    await anext(pieces)
        assert (await client.generate("a", max_tokens=2)).text == "bc"
    assert [record for record in complaints(caplog) if record.levelname not in ("INFO", "DEBUG")] == []


class Panic(BaseException):
    """As that of the tokenizers library is, which is no Exception."""


async def test_a_panic_at_a_prompt_ends_its_caller_with_an_error(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(card) as (client, _):
        async for _ in client.prepare("tiny", layers=LAYERS):
            pass

        def panics(*_arguments: object, **_options: object) -> tuple[int, ...]:
            raise Panic("called `Result::unwrap()` on an `Err` value")

        with monkeypatch.context() as patched:
            patched.setattr(TextTokenizer, "encode", panics)
            with pytest.raises(InternalError, match="unwrap"):
                await client.generate("a", max_tokens=2)
        assert (await client.generate("a", max_tokens=2)).text == "bc"


async def test_a_panic_at_the_tokenizer_ends_its_caller_with_an_error(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panics(*_arguments: object, **_options: object) -> None:
        raise Panic("attempt to subtract with overflow")

    async with client_of(card) as (client, _):
        with monkeypatch.context() as patched:
            patched.setattr(TextTokenizer, "read", panics)
            with pytest.raises(InternalError, match="subtract"):
                await client.generate("a", model="tiny", max_tokens=2)
        assert (await client.generate("a", model="tiny", max_tokens=2)).text == "bc"


async def failed(call: Any) -> LayerlineError:
    try:
        await call
    except grpc.aio.AioRpcError as failure:
        return error_from_rpc(failure, peer="the coordinator")
    raise AssertionError("it did not fail")


async def test_messages_by_hand_that_no_client_of_ours_sends(card: ModelCard) -> None:
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(nodes_of(card, "a", "b"))
        embedded = await stack.enter_async_context(embedded_coordinator(settings_for(nodes)))
        channel = await stack.enter_async_context(Transport().channel(embedded.address))
        stub = coordinator_pb2_grpc.CoordinatorStub(channel)
        plans = [
            coordinator_pb2.PlanRequest(),
            coordinator_pb2.PlanRequest(model="tiny", dtype="int2"),
            coordinator_pb2.PlanRequest(model="a\0b"),
            coordinator_pb2.PlanRequest(model="tiny", layers=[coordinator_pb2.ManualStage(node="")]),
        ]
        for message in plans:
            assert (await failed(stub.Plan(message))).code == "protocol"
            assert (await failed(stub.Prepare(message).read())).code == "protocol"
        odd = coordinator_pb2.PlanRequest(model="tiny", layers=[coordinator_pb2.ManualStage(node="z")])
        assert (await failed(stub.Plan(odd))).code == "plan_invalid"
        options, king = common_pb2.SamplingOptions, coordinator_pb2.ChatMessage(role="king", content="x")
        requests = [
            coordinator_pb2.GenerateRequest(model="tiny"),
            coordinator_pb2.GenerateRequest(model="tiny", prompt="x", sampling=options(top_p=0)),
            coordinator_pb2.GenerateRequest(model="tiny", prompt="x", sampling=options(temperature=math.nan)),
            coordinator_pb2.GenerateRequest(model="tiny", messages=[king]),
            coordinator_pb2.GenerateRequest(model="tiny", prompt="x", stop=[""]),
            coordinator_pb2.GenerateRequest(model="tiny", prompt="x", stop=["s"] * 17),
            coordinator_pb2.GenerateRequest(model="tiny", prompt="x", n=17),
        ]
        for request in requests:
            assert (await failed(stub.Generate(request).read())).code == "protocol"
        unknown = coordinator_pb2.GenerateRequest(model="a\nb", prompt="x")
        assert (await failed(stub.Generate(unknown).read())).code == "request"
        described = await stub.Describe(node_pb2.DescribeRequest())
        assert described.name == "test"


async def test_the_socket_goes_with_its_coordinator(card: ModelCard) -> None:
    async with nodes_of(card, "a") as nodes, embedded_coordinator(settings_for(nodes)) as embedded:
        folder = Path(embedded.address.removeprefix("unix:")).parent
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert not os.path.exists(folder)  # noqa: ASYNC240
