"""Which addresses of a machine count as usable, and in what order."""

from __future__ import annotations

import socket
from typing import NamedTuple

from layerline.interfaces import addresses_of, advertised_hosts, scoped_here, usable_addresses


class Raw(NamedTuple):
    family: int
    address: str


WORLD = {
    "lo": [Raw(socket.AF_INET, "127.0.0.1"), Raw(socket.AF_INET6, "::1")],
    "eth0": [
        Raw(socket.AF_INET6, "fe80::2%eth0"),
        Raw(socket.AF_INET6, "fd00::2"),
        Raw(socket.AF_INET, "10.0.0.2"),
        Raw(-1, "02:fc:00:00:00:01"),
    ],
    "wlan0": [
        Raw(socket.AF_INET6, "fe80::3"),
        Raw(socket.AF_INET, "0.0.0.0"),
        Raw(socket.AF_INET, "169.254.7.7"),
    ],
}


def test_ipv4_comes_first_link_local_late_and_loopback_last() -> None:
    hosts = [address.host for address in addresses_of(WORLD)]
    assert hosts == [
        "10.0.0.2",
        "fd00::2",
        "169.254.7.7",
        "fe80::2%eth0",
        "fe80::3%wlan0",
        "127.0.0.1",
        "::1",
    ]


def test_only_a_machine_without_network_tells_others_its_loopback() -> None:
    assert "127.0.0.1" not in advertised_hosts(addresses_of(WORLD))
    assert advertised_hosts(addresses_of({"lo": WORLD["lo"]})) == ("127.0.0.1", "::1")


def test_an_address_reads_as_interface_and_host() -> None:
    assert str(addresses_of(WORLD)[0]) == "eth0 (10.0.0.2)"


def test_this_machine_can_be_read() -> None:
    assert any(address.loopback for address in usable_addresses())


def test_a_link_local_address_of_another_machine_is_dialled_on_every_link_of_this_one() -> None:
    here = addresses_of(WORLD)
    both = ("[fe80::9%eth0]:7", "[fe80::9%wlan0]:7")
    assert scoped_here("[fe80::9]:7", here) == both
    assert scoped_here("[fe80::9%en0]:7", here) == both
    assert scoped_here("[fe80::9%wlan0]:7", here) == both[::-1]


def test_other_addresses_are_dialled_as_they_are() -> None:
    here = addresses_of(WORLD)
    for address in ("10.0.0.2:7", "[fd00::2]:7", "desk.local:7", "169.254.7.7:7"):
        assert scoped_here(address, here) == (address,)
    assert scoped_here("[fe80::9%eth7]:7", addresses_of({"lo": WORLD["lo"]})) == ("[fe80::9%eth7]:7",)
