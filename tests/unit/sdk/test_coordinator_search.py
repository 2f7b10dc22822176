"""Coordinators are found by mDNS; what is not found, or cannot be spoken with, is said with where was looked."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from layerline.coordinator_search import Found, first_speakable, search_coordinators
from layerline.errors import NoCoordinatorError, WireVersionError
from layerline.mdns import COORDINATOR_TYPE, CoordinatorAdvert
from layerline.version import WIRE_VERSION

SEARCHED = ("eth0 (10.0.0.1)", "lo (127.0.0.1)")
LONG_S = 20.0
MDNS_GROUP = "224.0.0.251"

Register = Callable[[ServiceInfo], Awaitable[None]]


def advert(name: str, wire_version: int = WIRE_VERSION) -> CoordinatorAdvert:
    return CoordinatorAdvert(name=name, model="tiny", wire_version=wire_version, addresses=("127.0.0.1:7354",))


def multicast_reaches_this_machine() -> bool:
    """Whether a datagram to the group of mDNS comes back, which sandboxes may not allow."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("", 0))
        receiver.settimeout(1)
        try:
            membership = socket.inet_aton(MDNS_GROUP) + socket.inet_aton("0.0.0.0")
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            sender.sendto(b"here", (MDNS_GROUP, receiver.getsockname()[1]))
            return receiver.recv(16) == b"here"
        except OSError:
            return False


@pytest.fixture
async def register() -> AsyncIterator[Register]:
    if not multicast_reaches_this_machine():
        pytest.skip("multicast does not work here")
    zeroconf = AsyncZeroconf()

    async def add(service: ServiceInfo) -> None:
        await zeroconf.async_register_service(service, allow_name_change=True)

    yield add
    await zeroconf.async_unregister_all_services()
    await zeroconf.async_close()


async def test_a_coordinator_is_found_beside_junk(register: Register) -> None:
    name = f"here-{secrets.token_hex(4)}"
    junk = ServiceInfo(
        COORDINATOR_TYPE,
        f"junk-{name}.{COORDINATOR_TYPE}",
        port=1,
        parsed_addresses=["127.0.0.1"],
        properties={"a": "b"},
    )
    await register(junk)
    await register(advert(name).to_service())
    found = await search_coordinators(LONG_S, lambda advert: advert.name == name)
    (ours,) = [advert for advert in found.adverts if advert.name == name]
    assert ours == advert(name)
    assert all(advert.name != f"junk-{name}" for advert in found.adverts)
    assert found.searched


async def test_a_search_ends_with_what_it_has() -> None:
    found = await search_coordinators(0.05, lambda advert: False)
    assert all(isinstance(advert, CoordinatorAdvert) for advert in found.adverts)


def test_the_first_that_can_be_spoken_with_is_taken() -> None:
    found = Found(adverts=(advert("old", WIRE_VERSION + 1), advert("a"), advert("b")), searched=SEARCHED)
    assert first_speakable(found, 3).name == "a"


def test_only_other_wire_versions_are_refused_with_both_named() -> None:
    found = Found(adverts=(advert("new", 77),), searched=SEARCHED)
    with pytest.raises(WireVersionError, match=f"Coordinator new speaks wire version 77.* speaks {WIRE_VERSION}"):
        first_speakable(found, 3)


def test_nothing_found_says_what_was_looked_for_and_where_and_how_to_start_one() -> None:
    with pytest.raises(NoCoordinatorError) as caught:
        first_speakable(Found(adverts=(), searched=SEARCHED), 3)
    for part in (COORDINATOR_TYPE, "eth0 (10.0.0.1), lo (127.0.0.1)", "layerline coordinator --model", "within 3 s"):
        assert part in str(caught.value)
