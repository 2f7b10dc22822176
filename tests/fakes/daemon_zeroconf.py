"""Sockets of zeroconf that reach nobody: what was registered is kept, and other nodes are as the test says."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import zeroconf
from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from layerline.mdns import Advert


class FakeNetwork:
    """A network with at most one other node, which has the id that is about to be registered."""

    def __init__(self, other: Advert | None = None) -> None:
        self.other = other
        self.unreachable = ""
        self.registered: list[ServiceInfo] = []
        self.opened = 0
        self.closed = 0
        self.changed = asyncio.Event()

    def open(self) -> AsyncZeroconf:
        """What opens sockets to it."""
        if self.unreachable:
            raise OSError(self.unreachable)
        self.opened += 1
        return cast("AsyncZeroconf", _Sockets(self))

    async def look_up(self, _sockets: AsyncZeroconf, _name: str) -> ServiceInfo:
        """What the other node answers about its service."""
        assert self.other is not None
        return self.other.to_service()


class _Sockets:
    def __init__(self, network: FakeNetwork) -> None:
        self._network = network

    async def async_register_service(self, service: ServiceInfo, *, cooperating_responders: bool = False) -> Any:
        if self._network.other and not cooperating_responders:
            raise zeroconf.NonUniqueNameException
        self._network.registered.append(service)
        self._network.changed.set()
        announced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        announced.set_result(None)
        return announced

    async def async_close(self) -> None:
        self._network.closed += 1
