"""Tells the network by mDNS that this node is there, for as long as it is, and anew when its addresses change.

Where mDNS cannot be used, a warning says what to do instead; the node goes on without.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import zeroconf
from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from layerline.addresses import split_address
from layerline.errors import NodeDuplicateError
from layerline.mdns import MAX_ADDRESSES, SERVICE_TYPE, Advert
from layerline.mdns_sockets import open_zeroconf
from node.daemon.listening import WILDCARD_HOSTS

LOOK_INTERVAL_S = 3.0
LOOK_UP_MS = 2_000
CLOSE_DEADLINE_S = 1.5

log = logging.getLogger(__name__)
Addresses = tuple[str, ...]
LookUp = Callable[[AsyncZeroconf, str], Awaitable[ServiceInfo]]


async def advertise(
    make_advert: Callable[[Addresses], Advert],
    list_addresses: Callable[[], Addresses],
    *,
    open_sockets: Callable[[], AsyncZeroconf],
    next_look: Callable[[], Awaitable[None]],
    look_up: LookUp,
) -> None:
    """Advertises until cancelled, then takes the advert back.

    NodeDuplicateError if, at the start, another machine already is the node of that id.
    """
    announced_before = False
    while True:
        addresses = list_addresses()[:MAX_ADDRESSES]
        advert = make_advert(addresses)
        async with _advertised(advert, open_sockets, look_up, refuse_duplicate=not announced_before):
            announced_before = True
            while list_addresses()[:MAX_ADDRESSES] == addresses:
                await next_look()
        log.info("The addresses of this machine have changed.")


async def look_interval() -> None:
    """Waits until it is time to look at the addresses again."""
    await asyncio.sleep(LOOK_INTERVAL_S)


async def look_up_service(sockets: AsyncZeroconf, name: str) -> ServiceInfo:
    """The node service called `name`, with whatever has been answered about it by the deadline."""
    service = AsyncServiceInfo(SERVICE_TYPE, name)
    await service.async_request(sockets.zeroconf, LOOK_UP_MS)
    return service


def sockets_for(host: str) -> Callable[[], AsyncZeroconf]:
    """What opens zeroconf where a daemon listens: everywhere, or on the interface of its one address."""
    if host in WILDCARD_HOSTS:
        return open_zeroconf

    def open_one() -> AsyncZeroconf:
        try:
            return AsyncZeroconf(interfaces=[host.partition("%")[0]])
        except RuntimeError as error:  # no interface has that address
            raise OSError(str(error)) from error

    return open_one


@asynccontextmanager
async def _advertised(
    advert: Advert, open_sockets: Callable[[], AsyncZeroconf], look_up: LookUp, *, refuse_duplicate: bool
) -> AsyncIterator[None]:
    try:
        sockets = open_sockets()
    except OSError as error:
        _warn(advert, str(error))
        yield
        return
    try:
        await _register(sockets, advert, look_up, refuse_duplicate)
        yield
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await sockets.async_close()


async def _register(sockets: AsyncZeroconf, advert: Advert, look_up: LookUp, refuse_duplicate: bool) -> None:
    service = advert.to_service()
    try:
        try:
            await (await sockets.async_register_service(service))
        except zeroconf.NonUniqueNameException:
            other = await _addresses_of_other(sockets, advert, look_up)
            if not other or not _unscoped(other) <= _unscoped(
                advert.addresses
            ):  # not ourselves, come back by a reflector
                _report_duplicate(advert, other, refuse_duplicate)
            await (await sockets.async_register_service(service, cooperating_responders=True))
    except (OSError, zeroconf.Error) as error:
        _warn(advert, repr(error))


async def _addresses_of_other(sockets: AsyncZeroconf, advert: Advert, look_up: LookUp) -> Addresses:
    try:
        return Advert.from_service(await look_up(sockets, advert.service_name)).addresses
    except ValueError:
        return ()


def _unscoped(addresses: Addresses) -> set[tuple[str, int]]:
    found = (split_address(address) for address in addresses)
    return {(host.partition("%")[0], port) for host, port in found}


def _report_duplicate(advert: Advert, other: Addresses, refuse: bool) -> None:
    where = ", ".join(other) or "an address it does not tell"
    error = NodeDuplicateError(
        f"A node with this node's id, {advert.node_id}, already runs at {where}; "
        f"this one is at {', '.join(advert.addresses)}.",
        node=advert.name,
        remedy="If this machine was copied from that one, remove the nodes folder in its layerline state folder, "
        "or use another --name: it then gets an id of its own.",
    )
    if refuse:
        raise error
    log.error("%s", error)


def _warn(advert: Advert, reason: str) -> None:
    log.warning(
        "mDNS cannot be used here (%s): coordinators do not find this node by themselves. Give them --node %s.",
        reason,
        advert.addresses[0] if advert.addresses else "HOST:PORT",
    )
