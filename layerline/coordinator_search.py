"""Looks for running coordinators by mDNS.

Owns the sockets of one search, which end with it. An advert is a hint where to ask; junk ones are skipped.
Kept apart so that a client that was given an address never loads zeroconf.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from zeroconf import Error as ZeroconfError
from zeroconf import Zeroconf
from zeroconf.asyncio import AsyncZeroconf

from layerline.calls import HOW_TO_START
from layerline.errors import NoCoordinatorError, WireVersionError
from layerline.interfaces import usable_addresses
from layerline.mdns import COORDINATOR_TYPE, CoordinatorAdvert
from layerline.mdns_sockets import Resolver, browse, open_zeroconf
from layerline.version import WIRE_VERSION

MAX_SERVICES = 64  # more than that is no LAN of ours but somebody's flood

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The coordinators that answered, in the order in which they did, and the interfaces that were searched."""

    adverts: tuple[CoordinatorAdvert, ...]
    searched: tuple[str, ...]

    def speakable(self) -> tuple[CoordinatorAdvert, ...]:
        """Those of this wire version."""
        return tuple(advert for advert in self.adverts if advert.wire_version == WIRE_VERSION)


async def search_coordinators(timeout_s: float, enough: Callable[[CoordinatorAdvert], bool]) -> Found:
    """Every coordinator that answers within `timeout_s`, or until one is `enough`."""
    searched = tuple(str(address) for address in usable_addresses())
    search = _Search(enough)
    try:
        zeroconf = open_zeroconf()
    except OSError as error:
        log.warning("mDNS cannot be used: %s", error)
        return Found(adverts=(), searched=searched)
    try:
        await search.run(zeroconf, timeout_s)
    finally:
        await zeroconf.async_close()
    return Found(adverts=tuple(search.adverts), searched=searched)


async def find_coordinator(timeout_s: float) -> CoordinatorAdvert:
    """The first coordinator of this wire version that answers within `timeout_s`."""
    found = await search_coordinators(timeout_s, lambda advert: advert.wire_version == WIRE_VERSION)
    return first_speakable(found, timeout_s)


def first_speakable(found: Found, timeout_s: float) -> CoordinatorAdvert:
    """The first of `found` that can be spoken with; NoCoordinatorError says where was looked, and how to start one."""
    for advert in found.speakable():
        return advert
    for advert in found.adverts:
        raise WireVersionError(
            f"Coordinator {advert.name} speaks wire version {advert.wire_version},"
            f" and this process speaks {WIRE_VERSION}.",
            remedy="Install the same version of layerline on both.",
        )
    raise NoCoordinatorError(
        f"No coordinator answered within {timeout_s:g} s to an mDNS search for {COORDINATOR_TYPE}"
        f" on {', '.join(found.searched) or 'no interface, as none is up'}.",
        remedy=HOW_TO_START,
    )


class _Search:
    """Adverts as they come in; `run` ends when one is enough or the time is up."""

    def __init__(self, enough: Callable[[CoordinatorAdvert], bool]) -> None:
        self.adverts: list[CoordinatorAdvert] = []
        self._enough = enough
        self._done = asyncio.Event()
        self._resolver = Resolver(COORDINATOR_TYPE)
        self._resolving: dict[str, asyncio.Task[None]] = {}

    async def run(self, zeroconf: AsyncZeroconf, timeout_s: float) -> None:
        browser = browse(zeroconf, COORDINATOR_TYPE, self._on_change)
        try:
            async with asyncio.timeout(timeout_s):
                await self._done.wait()
        except TimeoutError:
            pass
        finally:
            await browser.async_cancel()
            for task in self._resolving.values():
                task.cancel()
            await asyncio.gather(*self._resolving.values(), return_exceptions=True)

    def _on_change(self, zeroconf: Zeroconf, name: str, *, gone: bool) -> None:
        if gone or name in self._resolving:
            return
        if len(self._resolving) < MAX_SERVICES:
            self._resolving[name] = asyncio.ensure_future(self._resolve(zeroconf, name))

    async def _resolve(self, zeroconf: Zeroconf, name: str) -> None:
        try:
            resolved = await self._resolver.resolve(zeroconf, name)
            if resolved is None:
                return
            advert = CoordinatorAdvert.from_service(resolved.service, from_here=resolved.from_here)
        except (OSError, ValueError, ZeroconfError) as error:
            log.warning("The mDNS record of %r is junk: %s", name, error)
            return
        self.adverts.append(advert)
        if self._enough(advert):
            self._done.set()
