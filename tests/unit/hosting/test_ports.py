"""Where a daemon listens, which addresses that makes, and what is said of a port or host it cannot have."""

from __future__ import annotations

import functools
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from layerline.errors import PortInUseError, UsageError
from layerline.hosting import ports
from layerline.hosting.ports import Bind, Listening, listen
from layerline.interfaces import InterfaceAddress
from layerline.rpc.channels import make_server
from layerline.rpc.transport import Transport

INTERFACES = (
    InterfaceAddress(interface="eth0", host="10.0.0.2", loopback=False),
    InterfaceAddress(interface="eth0", host="fd00::2", loopback=False),
    InterfaceAddress(interface="lo", host="127.0.0.1", loopback=True),
)


@pytest.fixture
async def bind() -> AsyncIterator[Bind]:
    server = make_server()
    yield functools.partial(Transport().listen, server)
    await server.stop(None)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("::", ("10.0.0.2:7", "[fd00::2]:7")),
        ("0.0.0.0", ("10.0.0.2:7",)),
        ("10.0.0.2", ("10.0.0.2:7",)),
        ("fd00::2", ("[fd00::2]:7",)),
    ],
)
def test_the_addresses_are_those_of_the_interfaces_or_the_one_that_was_given(
    host: str, addresses: tuple[str, ...]
) -> None:
    assert Listening(host=host, port=7).addresses(INTERFACES) == addresses


async def test_any_port_of_every_interface(bind: Bind) -> None:
    found = listen(bind, "", [0])
    assert found.host in ports.WILDCARD_HOSTS
    assert found.port > 0
    assert found.host_text in ("[::]", "0.0.0.0")


async def test_one_address_by_name(bind: Bind) -> None:
    found = listen(bind, "127.0.0.1", [0])
    assert found.addresses() == (f"127.0.0.1:{found.port}",)


async def test_a_port_in_use_is_named_with_what_to_do(bind: Bind, taken_port: int) -> None:
    with pytest.raises(PortInUseError, match=f"on 127.0.0.1: port {taken_port} is in use.*--port"):
        listen(bind, "127.0.0.1", [taken_port])
    with pytest.raises(PortInUseError, match=f"listen: port {taken_port} is in use"):
        listen(bind, "", [taken_port])


async def test_the_first_port_that_is_free_is_taken(bind: Bind, taken_port: int) -> None:
    assert listen(bind, "127.0.0.1", range(taken_port, taken_port + 64)).port > taken_port


async def test_a_host_that_is_not_ours_is_named_with_those_that_are(bind: Bind) -> None:
    with pytest.raises(UsageError, match=r"198\.51\.100\.77 port 0 \(EADDRNOTAVAIL\).*addresses of this machine"):
        listen(bind, "198.51.100.77", [0])
    with pytest.raises(UsageError, match=r"--host a\.\.b is not an address"):
        listen(bind, "a..b", [0])
