"""A node is advertised as long as it lives, anew when addresses change, and never twice under one id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from layerline.errors import NodeDuplicateError
from layerline.hosting.adverts import advertise
from layerline.mdns import Advert
from layerline.version import WIRE_VERSION
from node.daemon.registration import Registration
from tests.fakes.daemon_zeroconf import FakeNetwork

HERE, THERE = ("10.0.0.2:7355",), ("10.0.0.9:7355",)
DEADLINE_S = 10


def make_advert(addresses: tuple[str, ...]) -> Advert:
    return Advert(
        node_id="k1", name="kitchen", version="1", wire_version=WIRE_VERSION, devices="cpu", addresses=addresses
    )


class Machine:
    """A machine whose addresses the test changes; `look` makes the advertiser look at them again."""

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = HERE
        self._look = asyncio.Event()

    def look(self) -> None:
        self._look.set()

    async def next_look(self) -> None:
        await self._look.wait()
        self._look.clear()


@asynccontextmanager
async def advertising(network: FakeNetwork, machine: Machine) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(
        advertise(
            lambda: make_advert(machine.addresses),
            Registration(network.look_up).register,
            instead=f"Give coordinators --node {HERE[0]}.",
            open_sockets=network.open,
            next_look=machine.next_look,
        )
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_an_advert_is_taken_back_at_the_end() -> None:
    network = FakeNetwork()
    async with advertising(network, Machine()):
        await network.changed.wait()
        assert (network.opened, network.closed) == (1, 0)
        assert Advert.from_service(network.registered[0]) == make_advert(HERE)
    assert network.closed == 1


async def test_changed_addresses_are_advertised_over_fresh_sockets() -> None:
    network, machine = FakeNetwork(), Machine()
    async with advertising(network, machine):
        await network.changed.wait()
        network.changed.clear()
        machine.look()
        machine.addresses = (*HERE, "[fd00::2]:7355")
        machine.look()
        await network.changed.wait()
        assert (network.opened, network.closed) == (2, 1)
        assert Advert.from_service(network.registered[1]).addresses == machine.addresses


async def test_a_node_of_the_same_id_elsewhere_is_refused_with_both_addresses() -> None:
    network = FakeNetwork(other=make_advert(THERE))
    async with advertising(network, Machine()) as task:
        with pytest.raises(NodeDuplicateError, match=rf"{THERE[0]}; this one is at {HERE[0]}.*--name"):
            await task
    assert network.registered == []


async def test_our_own_echo_is_not_another_node() -> None:
    network = FakeNetwork(other=make_advert(HERE))
    async with advertising(network, Machine()):
        await network.changed.wait()
    assert len(network.registered) == 1


async def test_where_mdns_cannot_be_used_a_warning_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    network, machine = FakeNetwork(), Machine()
    network.unreachable = "no multicast"
    async with advertising(network, machine):
        await asyncio.sleep(0)
        assert "no multicast" in caplog.text
        assert f"--node {HERE[0]}" in caplog.text
        network.unreachable = ""
        machine.addresses = THERE
        machine.look()
        await network.changed.wait()
        assert Advert.from_service(network.registered[0]).addresses == THERE
