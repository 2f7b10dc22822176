"""Where a program listens, and the addresses under which others reach it there.

A socket is tried before gRPC is, because gRPC does not say why it could not bind.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from layerline.addresses import MAX_ADDRESSES, join_address
from layerline.errors import PortInUseError, UsageError
from layerline.interfaces import InterfaceAddress, advertised_hosts, usable_addresses

ANY_IPV4 = "0.0.0.0"  # noqa: S104 - layerline is there for the whole network unless --host says otherwise
Bind = Callable[[str], int]  # host:port to the port that was bound; RuntimeError if none was
WILDCARD_HOSTS = ("::", ANY_IPV4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listening:
    """The host (a wildcard for every interface) and port that a program has."""

    host: str
    port: int

    @property
    def host_text(self) -> str:
        """The host as it stands in front of a port."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def told_address(self) -> str:
        """The address to name in a sentence."""
        return next(iter(self.addresses()), join_address(self.host, self.port))

    def addresses(self, interfaces: Iterable[InterfaceAddress] | None = None) -> tuple[str, ...]:
        """host:port of every way to this program, by what the interfaces have now; the best, where they are many."""
        found = tuple(usable_addresses() if interfaces is None else interfaces)
        if self.host not in WILDCARD_HOSTS:
            return (join_address(self.host, self.port),)
        if self.host == ANY_IPV4:
            found = tuple(address for address in found if ":" not in address.host)
        return tuple(join_address(host, self.port) for host in advertised_hosts(found)[:MAX_ADDRESSES])


def listen(bind: Bind, host: str, ports: Sequence[int]) -> Listening:
    """Has `bind` bind a server to `host` (empty for every interface) and the first of `ports` that is free.

    Raises PortInUseError, or UsageError for a host that is not this machine's.
    """
    hosts = (_resolved(host),) if host else WILDCARD_HOSTS
    for candidate in ports:
        for listen_host in hosts:
            failure = _failure_to_bind(listen_host, candidate)
            if failure is None:
                return _bound(bind, listen_host, candidate)
            if failure == errno.EADDRINUSE:
                break
            if listen_host == hosts[-1]:
                raise _not_ours(host or listen_host, candidate, failure)
    raise _in_use(hosts[0], ports)


def _bound(bind: Bind, host: str, port: int) -> Listening:
    try:
        bound = bind(join_address(host, port))
    except RuntimeError:  # another process was faster
        raise _in_use(host, (port,)) from None
    return Listening(host=host, port=bound)


def _resolved(host: str) -> str:
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {host} is not an address: {error}.", remedy=_own_addresses()) from error
    return host if "%" in host else str(found[0][4][0])


def _failure_to_bind(host: str, port: int) -> int | None:
    """The errno with which a listening socket cannot be had there, or None if it can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        return error.errno or errno.EADDRNOTAVAIL
    return None


def _in_use(host: str, ports: Iterable[int]) -> PortInUseError:
    first, *others = ports
    on = "" if host in WILDCARD_HOSTS else f" on {host}"
    which = f"ports {first} to {others[-1]} are" if others else f"port {first} is"
    return PortInUseError(
        f"layerline cannot listen{on}: {which} in use.",
        remedy="End what listens there, or choose another with --port; without --port a free one is found.",
    )


def _not_ours(host: str, port: int, failure: int) -> UsageError:
    if failure == errno.EACCES:
        return UsageError(f"This user may not listen on port {port}.", remedy="Choose a --port over 1023.")
    reason = f"{errno.errorcode.get(failure, failure)}"
    return UsageError(f"layerline cannot listen on {host} port {port} ({reason}).", remedy=_own_addresses())


def _own_addresses() -> str:
    own = ", ".join(str(address) for address in usable_addresses())
    return f"The addresses of this machine are {own or 'none: no interface is up'}."
