"""host:port in and out, with the mistakes people make."""

from __future__ import annotations

import pytest

from layerline.addresses import join_address, require_peer_address, split_address


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("10.0.0.2:7070", "10.0.0.2", 7070),
        ("desk.local:1", "desk.local", 1),
        ("[::1]:65535", "::1", 65535),
        ("[fe80::1%eth0]:7070", "fe80::1%eth0", 7070),
    ],
)
def test_addresses_go_both_ways(address: str, host: str, port: int) -> None:
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
def test_bad_addresses_say_what_is_wrong(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        split_address(address)


@pytest.mark.parametrize(
    "address",
    ["10.0.0.2:7070", "[fd00::2]:7070", "[fe80::1%eth0]:7070", "169.254.3.4:1", "172.17.0.1:1", "100.64.0.9:1"],
)
def test_an_address_of_one_machine_may_be_dialled_for_a_peer(address: str) -> None:
    require_peer_address(address, loopback=False)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("0.0.0.0:1", "no machine's"),
        ("0.1.2.3:1", "no machine's"),
        ("[::]:1", "no machine's"),
        ("[::ffff:0.0.0.0]:1", "no machine's"),
        ("224.0.0.251:1", "not one machine's"),
        ("[ff02::fb%eth0]:1", "not one machine's"),
        ("240.0.0.1:1", "not one machine's"),
        ("255.255.255.255:1", "not one machine's"),
        ("169.254.169.254:80", "metadata"),
        ("169.254.170.2:80", "metadata"),
        ("100.100.100.200:80", "metadata"),
        ("[::ffff:169.254.169.254]:80", "metadata"),
        ("[64:ff9b::169.254.169.254]:80", "metadata"),
        ("[fd00:ec2::254]:80", "metadata"),
        ("localhost:6379", "not appear to be an IP"),
        ("unix:1", "not appear to be an IP"),
        ("desk.local:7070", "not appear to be an IP"),
        ("2130706433:1", "not appear to be an IP"),
        ("0x7f.1:1", "not appear to be an IP"),
        ("unix:/run/docker.sock", "no port number"),
        ("10.0.0.2:0", "outside 1 to 65535"),
    ],
)
def test_an_address_that_must_not_be_dialled_says_why(address: str, reason: str) -> None:
    for loopback in (False, True):
        with pytest.raises(ValueError, match=reason):
            require_peer_address(address, loopback=loopback)


@pytest.mark.parametrize("address", ["127.0.0.1:6379", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"])
def test_a_loopback_address_is_one_for_peers_on_this_machine_alone(address: str) -> None:
    require_peer_address(address, loopback=True)
    with pytest.raises(ValueError, match="loopback address, and it is on another machine"):
        require_peer_address(address, loopback=False)
