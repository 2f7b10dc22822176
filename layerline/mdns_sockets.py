"""Opens zeroconf on every interface, with as many of IPv4 and IPv6 as the machine has, and browses with it."""

from __future__ import annotations

from collections.abc import Callable

from zeroconf import DNSQuestionType, InterfaceChoice, IPVersion
from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

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


def browse(zeroconf: AsyncZeroconf, kind: str, on_change: Callable[..., None]) -> AsyncServiceBrowser:
    """Looks for services of `kind`, to be cancelled by the caller, with answers to all from the first question on.

    By default zeroconf first asks for answers to this machine alone. Where several programs have UDP port 5353, such
    as a node and a command beside it, or avahi, each of those reaches only one of them.
    """
    return AsyncServiceBrowser(zeroconf.zeroconf, kind, handlers=[on_change], question_type=DNSQuestionType.QM)
