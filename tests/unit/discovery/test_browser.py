"""The browser over real zeroconf on the loopback interface, beside junk, and where mDNS cannot be used."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest
from zeroconf import IPVersion, ServiceInfo, Zeroconf
from zeroconf._protocol.outgoing import DNSOutgoing
from zeroconf.asyncio import AsyncZeroconf
from zeroconf.const import _FLAGS_AA as FLAGS_AA
from zeroconf.const import _FLAGS_QR_RESPONSE as FLAGS_QR_RESPONSE

from coordinator.discovery.browser import Browser
from layerline.interfaces import InterfaceAddress
from layerline.mdns import SERVICE_TYPE, Advert
from layerline.mdns_sockets import Resolved, Resolver, open_zeroconf
from tests.fakes.lookout import advert

DEADLINE_S = 10.0


def on_loopback() -> AsyncZeroconf:
    return AsyncZeroconf(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only)


def browser() -> Browser:
    loopback = InterfaceAddress(interface="lo", host="127.0.0.1", loopback=True)
    return Browser(open_sockets=on_loopback, list_addresses=lambda: (loopback,))


@pytest.fixture
async def announcer() -> AsyncIterator[AsyncZeroconf]:
    zeroconf = on_loopback()
    yield zeroconf
    await zeroconf.async_close()


async def announce(announcer: AsyncZeroconf, service: ServiceInfo) -> None:
    """Announces without the probing that real nodes do, which takes a second and a half."""
    await announcer.async_register_service(service, cooperating_responders=True)


async def until(found: Browser, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            changed = found.changed
            if condition():
                return
            await changed.wait()


def cry(service: ServiceInfo) -> None:
    """Sends the records of `service` as another machine's datagram: nobody here answers questions about it."""
    out = DNSOutgoing(FLAGS_QR_RESPONSE | FLAGS_AA)
    for record in (service.dns_pointer(), service.dns_service(), service.dns_text(), *service.dns_addresses()):
        out.add_answer_at_time(record, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        for packet in out.packets():
            sender.sendto(packet, ("224.0.0.251", 5353))


def unique(name: str) -> Advert:
    """An advert that no other test run on this machine makes."""
    return advert(name, "127.0.0.1:7070", node_id=f"test-{uuid4().hex[:16]}")


async def test_adverts_come_change_and_go_and_junk_is_told_apart(announcer: AsyncZeroconf) -> None:
    junk = ServiceInfo(
        SERVICE_TYPE,
        f"junk-{uuid4().hex[:16]}.{SERVICE_TYPE}",
        port=0,
        parsed_addresses=["127.0.0.1"],
        properties={b"\xff": b"\xfe"},
        server="junk.local.",
    )
    node = unique("kitchen")
    async with browser() as found:
        assert found.searched == ("lo (127.0.0.1)",)
        await announce(announcer, junk)
        await announce(announcer, node.to_service())
        await until(found, lambda: node in found.adverts.values())
        assert found.newest_s > found.opened_s
        await until(found, lambda: any("not UTF-8" in reason for reason in found.junk[1]))

        renamed = advert("parlour", *node.addresses, node_id=node.node_id)
        await announcer.async_update_service(renamed.to_service())
        await until(found, lambda: renamed in found.adverts.values())
        assert node not in found.adverts.values()

        await announcer.async_unregister_service(renamed.to_service())
        await until(found, lambda: renamed not in found.adverts.values())


async def test_what_is_asked_for_anew_is_waited_for_too_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    async def resolve(_resolver: Resolver, _zeroconf: object, name: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0.01)
            closed.append(name)

    monkeypatch.setattr(Resolver, "resolve", resolve)
    async with browser() as found:
        for _ in range(2):
            found._on_change(Zeroconf.__new__(Zeroconf), "kitchen", gone=False)
            await asyncio.sleep(0)
    assert closed == ["kitchen"] * 2


async def test_a_service_that_goes_before_its_records_are_here_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    node, may_end = unique("kitchen"), asyncio.Event()

    async def resolve(_resolver: Resolver, _zeroconf: object, _name: str) -> Resolved:
        await may_end.wait()
        return Resolved(service=node.to_service(), from_here=True)

    monkeypatch.setattr(Resolver, "resolve", resolve)
    async with browser() as found:
        for name, gone in (("kitchen", False), ("parlour", False), ("kitchen", True)):
            found._on_change(Zeroconf.__new__(Zeroconf), name, gone=gone)
        may_end.set()
        await until(found, lambda: "parlour" in found.adverts)
        assert "kitchen" not in found.adverts


async def test_a_record_of_another_machine_that_points_at_a_port_of_the_reader_is_junk() -> None:
    async with browser() as found:
        pointer = advert("redis", "127.0.0.1:6379", node_id=f"test-{uuid4().hex[:16]}")
        cry(pointer.to_service())
        await until(found, lambda: any(pointer.node_id in reason for reason in found.junk[1]))
        assert any("a loopback address, and it is on another machine" in reason for reason in found.junk[1])
        assert pointer not in found.adverts.values()


async def test_without_mdns_nothing_is_found_and_the_reason_is_kept() -> None:
    def refuse() -> AsyncZeroconf:
        raise OSError("port 5353 is taken")

    async with Browser(open_sockets=refuse) as found:
        assert (found.failure, dict(found.adverts), found.searched) == ("port 5353 is taken", {}, ())


def test_every_reason_why_sockets_cannot_be_opened_is_named() -> None:
    def refuse(family: IPVersion) -> AsyncZeroconf:
        raise OSError(f"no {family.name}")

    with pytest.raises(OSError, match="no All; no V4Only; no V6Only"):
        open_zeroconf(refuse)


def test_a_machine_without_addresses_says_so() -> None:
    def refuse(family: IPVersion) -> AsyncZeroconf:
        raise RuntimeError(f"No interfaces to listen on for {family}")

    with pytest.raises(OSError, match="no network interface has an address"):
        open_zeroconf(refuse)


async def test_a_machine_with_one_family_uses_that() -> None:
    tried = []

    def only_ipv4(family: IPVersion) -> AsyncZeroconf:
        tried.append(family)
        if family is not IPVersion.V4Only:
            raise RuntimeError("No interfaces to listen on")
        return on_loopback()

    await open_zeroconf(only_ipv4).async_close()
    assert tried == [IPVersion.All, IPVersion.V4Only]
