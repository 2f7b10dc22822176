"""Opens zeroconf on every interface, with as many of IPv4 and IPv6 as the machine has, and looks for services with it.

Records of any machine come in on the same sockets. A service that names loopback addresses alone must be of this one:
it is asked for once more over loopback, from a socket that nobody else can reach.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from zeroconf import DNSQuestionType, InterfaceChoice, IPVersion, ServiceInfo, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from layerline.mdns import names_loopback_alone

RESOLVE_TIMEOUT_MS = 2_000
LOOPBACK_TIMEOUT_MS = 300  # a program on this machine answers within a few milliseconds
LOOPBACK = "127.0.0.1"
MAX_ASKED_OVER_LOOPBACK = 16

_FAMILIES = (IPVersion.All, IPVersion.V4Only, IPVersion.V6Only)


def _on_all_interfaces(family: IPVersion) -> AsyncZeroconf:
    return AsyncZeroconf(interfaces=InterfaceChoice.All, ip_version=family)


def open_zeroconf(open_family: Callable[[IPVersion], AsyncZeroconf] = _on_all_interfaces) -> AsyncZeroconf:
    """Zeroconf on all interfaces, to be closed by the caller; OSError says why mDNS cannot be used here."""
    reasons: dict[str, None] = {}
    for family in _FAMILIES:
        try:
            return open_family(family)
        except OSError as error:
            reasons[str(error)] = None
        except RuntimeError:  # zeroconf's way to say that no interface has an address of that family
            pass
    raise OSError("; ".join(reasons) or "no network interface has an address")


class OnChange(Protocol):
    """What is called when a service came, changed or, if `gone`, went."""

    def __call__(self, zeroconf: Zeroconf, name: str, *, gone: bool) -> None: ...


def browse(zeroconf: AsyncZeroconf, kind: str, on_change: OnChange) -> AsyncServiceBrowser:
    """Looks for services of `kind`, to be cancelled by the caller, with answers to all from the first question on.

    By default zeroconf first asks for answers to this machine alone. Where several programs have UDP port 5353, such
    as a node and a command beside it, or avahi, each of those reaches only one of them.
    """

    def heard(*, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if service_type == kind:
            on_change(zeroconf, name, gone=state_change is ServiceStateChange.Removed)

    return AsyncServiceBrowser(zeroconf.zeroconf, kind, handlers=[heard], question_type=DNSQuestionType.QM)


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """The records of a service, and whether they came over loopback, so that they are of this machine."""

    service: ServiceInfo
    from_here: bool


class Resolver:
    """Fetches the records of services of one kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._turns = asyncio.Semaphore(MAX_ASKED_OVER_LOOPBACK)

    async def resolve(self, zeroconf: Zeroconf, name: str) -> Resolved | None:
        """The service called `name`, None if nobody says where it is."""
        service = AsyncServiceInfo(self._kind, name)
        if not await service.async_request(zeroconf, RESOLVE_TIMEOUT_MS):
            return None
        here = await self._resolve_here(name) if names_loopback_alone(service) else None
        return Resolved(service=here or service, from_here=here is not None)

    async def _resolve_here(self, name: str) -> ServiceInfo | None:
        """The service as a program of this machine tells it now, None if there is no such program."""
        service = AsyncServiceInfo(self._kind, name)
        async with self._turns:
            # Unicast is a port of its own: datagrams to a socket of that address come from this machine only.
            sockets = AsyncZeroconf(interfaces=[LOOPBACK], ip_version=IPVersion.V4Only, unicast=True)
            try:
                return service if await service.async_request(sockets.zeroconf, LOOPBACK_TIMEOUT_MS) else None
            finally:
                await sockets.async_close()
