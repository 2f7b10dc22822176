"""Looks out for nodes by mDNS and keeps their adverts, for as long as its block lasts.

Where mDNS cannot be used, it says why and finds nothing. Junk records are counted and the last reasons kept.
Adverts are hints where to ask, and so are goodbyes: whether a node lives is for others to find out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Protocol, Self

from zeroconf import Error as ZeroconfError
from zeroconf import Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

from layerline.interfaces import InterfaceAddress, usable_addresses
from layerline.mdns import SERVICE_TYPE, Advert
from layerline.mdns_sockets import Resolver, browse, open_zeroconf

MAX_SERVICES = 4_096  # more than any LAN has nodes: beyond is a flood that nobody can look through
MAX_REASONS = 8


class Lookout(Protocol):
    """What the search for nodes needs to know of mDNS."""

    @property
    def adverts(self) -> Mapping[str, Advert]:
        """The adverts now known, by name of service."""

    @property
    def newest_s(self) -> float:
        """When the last new advert came, or the lookout began; in the event loop's time."""

    @property
    def opened_s(self) -> float:
        """When the lookout began."""

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change; a later change has an event of its own."""

    @property
    def searched(self) -> tuple[str, ...]:
        """The interfaces looked at, for people."""

    @property
    def failure(self) -> str:
        """Why mDNS cannot be used; empty if it can."""

    @property
    def junk(self) -> tuple[int, tuple[str, ...]]:
        """How many junk records came, and what was wrong with the last of them."""


class NoMdns:
    """The lookout of a coordinator that was told not to use mDNS: it sees nothing, and says why."""

    adverts: Mapping[str, Advert] = MappingProxyType({})
    searched: tuple[str, ...] = ()
    failure = "it was turned off with --no-mdns"
    junk: tuple[int, tuple[str, ...]] = (0, ())

    def __init__(self, now_s: float) -> None:
        self.opened_s = now_s
        self.newest_s = now_s
        self.changed = asyncio.Event()


class Browser:
    """A lookout over zeroconf, used as an `async with` block."""

    def __init__(
        self,
        *,
        open_sockets: Callable[[], AsyncZeroconf] = open_zeroconf,
        list_addresses: Callable[[], Sequence[InterfaceAddress]] = usable_addresses,
    ) -> None:
        self.failure = ""
        self.searched: tuple[str, ...] = ()
        self.opened_s = 0.0
        self.newest_s = 0.0
        self.changed = asyncio.Event()
        self._open_sockets = open_sockets
        self._list_addresses = list_addresses
        self._adverts: dict[str, Advert] = {}
        self._junk_count = 0
        self._junk_reasons: deque[str] = deque(maxlen=MAX_REASONS)
        self._resolving: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # with those whose answer is stale, while they close their sockets
        self._resolver = Resolver(SERVICE_TYPE)
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None

    async def __aenter__(self) -> Self:
        self.opened_s = self.newest_s = asyncio.get_running_loop().time()
        try:
            self._zeroconf = self._open_sockets()
        except OSError as error:
            self.failure = str(error)
            return self
        self.searched = tuple(str(address) for address in self._list_addresses())
        self._browser = browse(self._zeroconf, SERVICE_TYPE, self._on_change)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._browser is not None:
            await self._browser.async_cancel()
        for task in self._resolving.values():
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._zeroconf is not None:
            await self._zeroconf.async_close()

    @property
    def adverts(self) -> Mapping[str, Advert]:
        """The adverts now known, by name of service."""
        return self._adverts

    @property
    def junk(self) -> tuple[int, tuple[str, ...]]:
        """How many junk records came, and what was wrong with the last of them."""
        return self._junk_count, tuple(self._junk_reasons)

    def _on_change(self, zeroconf: Zeroconf, name: str, *, gone: bool) -> None:
        if name in self._resolving:  # what is being asked for is stale
            self._resolving.pop(name).cancel()
        if gone:
            if self._adverts.pop(name, None) is not None:
                self._note_change()
            return
        if name not in self._adverts and len(self._adverts) + len(self._resolving) >= MAX_SERVICES:
            self._note_junk(name, f"more than {MAX_SERVICES} services are advertised")
            return
        task = asyncio.get_running_loop().create_task(self._resolve(zeroconf, name))
        self._resolving[name] = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._forget(name, done))

    def _forget(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._resolving.get(name) is task:
            del self._resolving[name]

    async def _resolve(self, zeroconf: Zeroconf, name: str) -> None:
        """Keeps the advert of service `name`, once its records are here."""
        try:
            resolved = await self._resolver.resolve(zeroconf, name)
            if resolved is None:
                self._note_junk(name, "it did not say its address")
                return
            advert = Advert.from_service(resolved.service, from_here=resolved.from_here)
        except (OSError, ValueError, ZeroconfError) as error:
            self._note_junk(name, str(error))
            return
        if name not in self._adverts:
            self.newest_s = asyncio.get_running_loop().time()
        self._adverts[name] = advert
        self._note_change()

    def _note_junk(self, name: str, reason: str) -> None:
        self._junk_count += 1
        self._junk_reasons.append(f"{name[:80]!r}: {reason}")
        self._note_change()

    def _note_change(self) -> None:
        event, self.changed = self.changed, asyncio.Event()
        event.set()
