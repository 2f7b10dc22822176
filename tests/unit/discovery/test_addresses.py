"""host:port in and out, with the mistakes people make."""

from __future__ import annotations

import pytest

from layerline.addresses import join_address, split_address


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("10.0.0.2:7070", "10.0.0.2", 7070),
        ("desk.local:1", "desk.local", 1),
        ("[::1]:65535", "::1", 65535),
        ("[fe80::1%eth0]:7070", "fe80::1%eth0", 7070),
    ],
)
def test_addresses_go_both_ways(address: str, host: str, port: int):
    assert split_address(address) == (host, port)
    assert join_address(host, port) == address


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "not of the form"),
        ("desk", "not of the form"),
        (":7070", "not of the form"),
        ("[]:7070", "brackets"),
        ("[desk]:7070", "brackets"),
        ("fe80::1:7070", "needs brackets"),
        ("a b:7070", "not of the form"),
        ("desk:", "no port number"),
        ("desk:http", "no port number"),
        ("desk:-1", "no port number"),
        ("desk:٣", "no port number"),
        ("desk:0", "outside 1 to 65535"),
        ("desk:65536", "outside 1 to 65535"),
        ("desk:" + "9" * 200, "outside 1 to 65535"),
        ("d" * 300 + ":1", "too long"),
        ("d\n:1", "not printable"),
    ],
)
def test_bad_addresses_say_what_is_wrong(address: str, reason: str):
    with pytest.raises(ValueError, match=reason):
        split_address(address)
