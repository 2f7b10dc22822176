"""Clients that are given several addresses of one coordinator, some of which are another machine's on this network."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
import pytest

from layerline import AsyncClient, Client, LayerlineError, ProtocolError, WireVersionError
from layerline.reports import CoordinatorFacts
from tests.fakes.coordinator_service import FakeCoordinator, serving

Connect = Callable[[Sequence[str]], CoordinatorFacts]


def connect_blocking(addresses: Sequence[str]) -> CoordinatorFacts:
    with Client(addresses) as client:
        return client.connect()


def connect_async(addresses: Sequence[str]) -> CoordinatorFacts:
    async def connect() -> CoordinatorFacts:
        async with AsyncClient(addresses) as client:
            return await client.connect()

    return asyncio.run(connect())


@pytest.fixture
def coordinator() -> Iterator[str]:
    with serving(FakeCoordinator()) as address:
        yield address


@pytest.fixture
def other_version() -> Iterator[str]:
    fake = FakeCoordinator()
    fake.facts = replace(fake.facts, wire_version=77)
    with serving(fake) as address:
        yield address


@pytest.fixture
def other_service() -> Iterator[str]:
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(0).wait()


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unheard.getsockname()[1]}"


@pytest.mark.parametrize("connect", [connect_blocking, connect_async])
def test_an_address_that_answers_otherwise_does_not_hide_a_later_one(
    connect: Connect, silent: str, other_service: str, other_version: str, coordinator: str
) -> None:
    assert connect([silent, other_service, other_version, coordinator]) == FakeCoordinator().facts


@pytest.mark.parametrize("connect", [connect_blocking, connect_async])
def test_if_none_is_the_coordinator_the_first_refusal_is_told(
    connect: Connect, silent: str, other_service: str, other_version: str
) -> None:
    refusals: list[tuple[type[LayerlineError], list[str]]] = [
        (WireVersionError, [silent, other_version, other_service]),
        (ProtocolError, [other_service, other_version, silent]),
    ]
    for error, addresses in refusals:
        with pytest.raises(error):
            connect(addresses)
