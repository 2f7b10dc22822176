"""The network interfaces of this machine that another machine, or another daemon here, can be met on.

Read anew at every call, since addresses change. Knows nothing of mDNS or gRPC.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import psutil

from layerline.addresses import join_address, split_address


class RawAddress(Protocol):
    """One address of an interface, as psutil gives it."""

    @property
    def family(self) -> int: ...

    @property
    def address(self) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class InterfaceAddress:
    """One address on one interface; a link-local IPv6 `host` carries its scope, as in fe80::1%eth0."""

    interface: str
    host: str
    loopback: bool

    def __str__(self) -> str:
        return f"{self.interface} ({self.host})"

    @property
    def ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        """The address without its scope."""
        return _ip(self.host)


def usable_addresses() -> tuple[InterfaceAddress, ...]:
    """Every address of every interface that is up: IPv4, IPv6, link-local IPv6, loopback, in that order."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    return addresses_of({name: raw for name, raw in psutil.net_if_addrs().items() if name in up})


def addresses_of(interfaces: Mapping[str, Sequence[RawAddress]]) -> tuple[InterfaceAddress, ...]:
    """The usable addresses among those of `interfaces` (by name), those that others reach best first."""
    found = []
    for interface, raw_addresses in interfaces.items():
        for raw in raw_addresses:
            address = _usable(interface, raw)
            if address is not None:
                found.append(address)
    return tuple(sorted(found, key=lambda address: reach_rank(address.host)))


def advertised_hosts(addresses: Sequence[InterfaceAddress]) -> tuple[str, ...]:
    """The hosts to tell others: loopback only where there is no network, as others have a loopback too."""
    outward = tuple(address.host for address in addresses if not address.loopback)
    return outward or tuple(address.host for address in addresses)


def scoped_here(address: str, interfaces: Sequence[InterfaceAddress] | None = None) -> tuple[str, ...]:
    """What to dial on this machine for `address` (host:port) that another one told.

    A link-local IPv6 address is on one link, and only this machine knows which of its interfaces that may be: all those
    that have such an address themselves, the one first that `address` names.
    """
    host, port = split_address(address)
    bare, _, scope = host.partition("%")
    if not _is_link_local(bare):
        return (address,)
    own = usable_addresses() if interfaces is None else interfaces
    linked = [each.interface for each in own if _is_link_local(each.host.partition("%")[0])]
    names = dict.fromkeys(sorted(linked, key=lambda name: not scope or scope not in (name, _index_of(name))))
    return tuple(join_address(f"{bare}%{name}", port) for name in names) or (address,)


def _index_of(interface: str) -> str:
    """The number that an interface's scope may be written as, too."""
    try:
        return str(socket.if_nametoindex(interface))
    except OSError:
        return ""


def _is_link_local(host: str) -> bool:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    return ip.version == 6 and ip.is_link_local


def reach_rank(host: str) -> tuple[bool, bool, bool]:
    """Sorts addresses by how well others reach them: IPv4, IPv6, link-local, loopback."""
    ip = _ip(host)
    return ip.is_loopback, ip.is_link_local, ip.version == 6


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(host.partition("%")[0])


def _usable(interface: str, raw: RawAddress) -> InterfaceAddress | None:
    if raw.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    bare, _, scope = raw.address.partition("%")
    try:
        ip = ipaddress.ip_address(bare)
    except ValueError:
        return None
    if ip.is_unspecified or ip.is_multicast:
        return None
    scoped = ip.version == 6 and ip.is_link_local
    host = f"{bare}%{scope or interface}" if scoped else bare
    return InterfaceAddress(interface=interface, host=host, loopback=ip.is_loopback)
