"""Keeps an advert on the network by mDNS as long as its program lives, and true when what it says changes.

Where mDNS cannot be used, a warning says what to do instead; the program goes on without.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import zeroconf
from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from layerline.hosting.ports import WILDCARD_HOSTS
from layerline.mdns_sockets import open_zeroconf

LOOK_INTERVAL_S = 3.0
CLOSE_DEADLINE_S = 1.5

log = logging.getLogger(__name__)
OpenSockets = Callable[[], AsyncZeroconf]


class Advertised(Protocol):
    """An advert of `layerline.mdns`."""

    def to_service(self) -> ServiceInfo:
        """The service to register."""


Said = TypeVar("Said", bound=Advertised)
Register = Callable[[AsyncZeroconf, Said], Awaitable[None]]


async def advertise(
    current: Callable[[], Said],
    register: Register[Said],
    *,
    instead: str,
    open_sockets: OpenSockets,
    next_look: Callable[[], Awaitable[None]],
) -> None:
    """Advertises what `current` says until cancelled, then takes it back; anew over fresh sockets when it changes.

    `register` puts an advert on the network, and what it raises other than zeroconf's own errors ends this.
    `instead` is the sentence on what to do where mDNS cannot be used.
    """
    while True:
        advert = current()
        async with _advertised(advert, register, instead, open_sockets):
            while current() == advert:
                await next_look()
        log.info("What this program tells by mDNS has changed.")


async def look_interval() -> None:
    """Waits until it is time to look again whether the advert is still true."""
    await asyncio.sleep(LOOK_INTERVAL_S)


async def register_renamed(sockets: AsyncZeroconf, advert: Advertised) -> None:
    """Registers an advert whose name is not unique: the second one of that name gets another."""
    await (await sockets.async_register_service(advert.to_service(), allow_name_change=True))


def sockets_for(host: str) -> OpenSockets:
    """What opens zeroconf where a program listens: everywhere, or on the interface of its one address."""
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
    advert: Said, register: Register[Said], instead: str, open_sockets: OpenSockets
) -> AsyncIterator[None]:
    try:
        sockets = open_sockets()
    except OSError as error:
        _warn(str(error), instead)
        yield
        return
    try:
        try:
            await register(sockets, advert)
        except (OSError, zeroconf.Error) as error:
            _warn(repr(error), instead)
        yield
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await sockets.async_close()


def _warn(reason: str, instead: str) -> None:
    log.warning("mDNS cannot be used here (%s): nobody finds this program by itself. %s", reason, instead)
