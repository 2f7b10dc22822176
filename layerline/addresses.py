"""Addresses as people and messages write them: host:port, with brackets round an IPv6 host.

A link-local IPv6 host keeps its scope, as in [fe80::1%eth0]:7070, since it means nothing without.
Knows no sockets.
"""

from __future__ import annotations

from layerline.checks import require

MAX_ADDRESS_LENGTH = 280


def join_address(host: str, port: int) -> str:
    """`host` and `port` as host:port, or [host]:port if the host is IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """The host and port of `address`; ValueError says what is wrong with it."""
    require(
        len(address) <= MAX_ADDRESS_LENGTH and address.isprintable(),
        "an address is too long or not printable",
    )
    host, colon, port_text = address.rpartition(":")
    require(bool(colon) and bool(host), f"{address!r} is not of the form HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        require(":" in host, f"{address!r} has brackets round something that is not an IPv6 address")
    else:
        require(":" not in host, f"{address!r} needs brackets round its IPv6 address, as in [fe80::1%eth0]:7070")
    require(bool(host) and " " not in host, f"{address!r} is not of the form HOST:PORT")
    require(port_text.isascii() and port_text.isdigit(), f"{address!r} has no port number after its last colon")
    require(len(port_text) <= 5 and 0 < int(port_text) < 1 << 16, f"{address!r} has a port outside 1 to 65535")
    return host, int(port_text)
