"""Opens zeroconf on every interface, with as many of IPv4 and IPv6 as the machine has."""

from __future__ import annotations

from collections.abc import Callable

from zeroconf import InterfaceChoice, IPVersion
from zeroconf.asyncio import AsyncZeroconf

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
