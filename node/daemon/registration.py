"""Puts a node on the network under its id, and notices another machine that has the same one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import zeroconf
from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from layerline.addresses import split_address
from layerline.errors import NodeDuplicateError
from layerline.mdns import SERVICE_TYPE, Advert

LOOK_UP_MS = 2_000

log = logging.getLogger(__name__)
LookUp = Callable[[AsyncZeroconf, str], Awaitable[ServiceInfo]]


async def look_up_service(sockets: AsyncZeroconf, name: str) -> ServiceInfo:
    """The node service called `name`, with whatever has been answered about it by the deadline."""
    service = AsyncServiceInfo(SERVICE_TYPE, name)
    await service.async_request(sockets.zeroconf, LOOK_UP_MS)
    return service


class Registration:
    """Registers the advert of one node, as often as it changes."""

    def __init__(self, look_up: LookUp = look_up_service) -> None:
        self._look_up = look_up
        self._announced = False

    async def register(self, sockets: AsyncZeroconf, advert: Advert) -> None:
        """Puts the advert on the network.

        NodeDuplicateError if, at the first time, another machine already is the node of that id; later, that is
        its fault, and only logged.
        """
        service = advert.to_service()
        try:
            await (await sockets.async_register_service(service))
        except zeroconf.NonUniqueNameException:
            other = await self._addresses_of_other(sockets, advert)
            if not other or not _unscoped(other) <= _unscoped(advert.addresses):  # or a reflector's echo of ourselves
                self._report_duplicate(advert, other)
            await (await sockets.async_register_service(service, cooperating_responders=True))
        self._announced = True

    async def _addresses_of_other(self, sockets: AsyncZeroconf, advert: Advert) -> tuple[str, ...]:
        try:
            service = await self._look_up(sockets, advert.service_name)
            return Advert.from_service(service, from_here=True).addresses  # they are told to people, not dialled
        except ValueError:
            return ()

    def _report_duplicate(self, advert: Advert, other: tuple[str, ...]) -> None:
        where = ", ".join(other) or "an address it does not tell"
        error = NodeDuplicateError(
            f"A node with this node's id, {advert.node_id}, already runs at {where}; "
            f"this one is at {', '.join(advert.addresses)}.",
            node=advert.name,
            remedy="If this machine was copied from that one, remove the nodes folder in its layerline state folder, "
            "or use another --name: it then gets an id of its own.",
        )
        if not self._announced:
            raise error
        log.error("%s", error)


def _unscoped(addresses: tuple[str, ...]) -> set[tuple[str, int]]:
    found = (split_address(address) for address in addresses)
    return {(host.partition("%")[0], port) for host, port in found}
