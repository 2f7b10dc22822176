"""Addresses as people and messages write them: host:port, with brackets round an IPv6 host.

A link-local IPv6 host keeps its scope, as in [fe80::1%eth0]:7070, since it means nothing without.
Here is also the one rule on which addresses that a peer names (in an advert, in its facts, in a plan) may be dialled.
Knows no sockets.
"""

from __future__ import annotations

import ipaddress

from layerline.checks import require

MAX_ADDRESS_LENGTH = 280
MAX_ADDRESSES = 64  # of one machine
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# Clouds give a machine's secrets to whoever asks there: never to be dialled for somebody else.
_METADATA = tuple(
    ipaddress.ip_network(network)
    for network in ("169.254.169.0/24", "169.254.170.0/24", "100.100.100.200/32", "fd00:ec2::254/128")
)
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: the last four bytes are an IPv4 address
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
_RESERVED = ipaddress.ip_network("240.0.0.0/4")  # the broadcast address is its last


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


def ip_of(host: str) -> IpAddress:
    """The IP address that `host` is, without its scope; of one that stands for an IPv4 address, that. Or ValueError."""
    ip = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped:
            return ip.ipv4_mapped
        if ip in _TRANSLATED:
            return ipaddress.IPv4Address(ip.packed[-4:])
    return ip


def is_loopback(host: str) -> bool:
    """Whether `host` is an address that every machine has for itself alone."""
    return ip_of(host).is_loopback


def require_peer_host(host: str, *, loopback: bool) -> None:
    """ValueError unless `host`, which a peer named, is the IP address of one machine that may be dialled.

    `loopback` is whether it may be a loopback address: only if that peer is on this machine, as its connection shows.
    """
    ip = ip_of(host)
    nowhere = ip.is_unspecified or (ip.version == 4 and ip in _THIS_NETWORK)
    require(not nowhere, f"its address {host} is no machine's")
    everybody = ip.is_multicast or (ip.version == 4 and ip in _RESERVED)
    require(not everybody, f"its address {host} is not one machine's")
    metadata = any(ip.version == network.version and ip in network for network in _METADATA)
    require(not metadata, f"its address {host} is a cloud's metadata service")
    require(loopback or not ip.is_loopback, f"its address {host} is a loopback address, and it is on another machine")


def require_peer_address(address: str, *, loopback: bool) -> None:
    """The same for host:port; never a name, since whoever answers for names says where they lead."""
    require_peer_host(split_address(address)[0], loopback=loopback)
