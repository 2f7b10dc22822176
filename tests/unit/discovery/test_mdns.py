"""Adverts survive the way through a service record, and junk records say why they are junk."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zeroconf import ServiceInfo

from layerline.mdns import COORDINATOR_TYPE, SERVICE_TYPE, Advert, CoordinatorAdvert

TXT: dict[bytes, bytes | None] = {
    b"id": b"kitchen-1",
    b"name": b"kitchen",
    b"version": b"0.1.0",
    b"wire": b"1",
    b"devices": b"cpu 4 threads",
}


def service(*hosts: str, port: int = 7070, txt: dict[Any, Any] | None = None) -> ServiceInfo:
    properties = TXT if txt is None else txt
    return ServiceInfo(
        SERVICE_TYPE, f"x.{SERVICE_TYPE}", port=port, parsed_addresses=list(hosts), properties=properties
    )


def advert(**changes: Any) -> Advert:
    fields: dict[str, Any] = {
        "node_id": "kitchen-1",
        "name": "Küche 3.7",
        "version": "0.1.0",
        "wire_version": 1,
        "devices": "",
        "addresses": ("10.0.0.2:7070", "[fd00::2]:7070"),
    }
    return Advert(**{**fields, **changes})


def test_an_advert_survives_the_way_through_a_service() -> None:
    assert Advert.from_service(advert().to_service()) == advert()


def test_a_coordinator_survives_the_way_through_a_service() -> None:
    coordinator = CoordinatorAdvert(
        name="desk.lan of Zoë", model="", wire_version=1, addresses=("10.0.0.3:9000", "[fd00::3]:9000")
    )
    assert CoordinatorAdvert.from_service(coordinator.to_service()) == coordinator
    assert coordinator.service_name.startswith("desk-lan of Zoë.")


def test_a_scope_is_not_sent_since_it_means_nothing_to_others() -> None:
    sent = advert(addresses=("[fe80::1%eth0]:7070", "10.0.0.2:7070")).to_service()
    assert set(sent.parsed_addresses()) == {"fe80::1", "10.0.0.2"}


def test_a_received_link_local_address_has_the_scope_it_came_with() -> None:
    scoped = service("10.0.0.2")
    scoped.interface_index = 3
    scoped.addresses = [socket.inet_aton("10.0.0.2"), socket.inet_pton(socket.AF_INET6, "fe80::1")]
    assert Advert.from_service(scoped).addresses == ("10.0.0.2:7070", "[fe80::1%3]:7070")


def test_addresses_are_best_first_whatever_order_they_came_in() -> None:
    received = Advert.from_service(service("::1", "fd00::2", "127.0.0.1", "10.0.0.9", "10.0.0.2"))
    assert received.addresses == (
        "10.0.0.2:7070",
        "10.0.0.9:7070",
        "[fd00::2]:7070",
    )


def test_loopback_addresses_beside_others_are_left_out() -> None:
    assert Advert.from_service(service("::1", "127.0.0.1", "10.0.0.2")).addresses == ("10.0.0.2:7070",)


def test_an_advert_of_loopback_addresses_alone_must_have_come_over_loopback() -> None:
    pointing_at_the_reader = service("127.0.0.1", port=6379)
    with pytest.raises(ValueError, match="loopback address, and it is on another machine"):
        Advert.from_service(pointing_at_the_reader)
    assert Advert.from_service(pointing_at_the_reader, from_here=True).addresses == ("127.0.0.1:6379",)


def test_a_link_local_address_without_scope_is_left_out() -> None:
    assert Advert.from_service(service("10.0.0.2", "fe80::1")).addresses == ("10.0.0.2:7070",)
    with pytest.raises(ValueError, match="usable addresses"):
        Advert.from_service(service("fe80::1"))


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("0.0.0.0", "no machine's"),
        ("::", "no machine's"),
        ("224.0.0.251", "not one machine's"),
        ("ff02::fb", "not one machine's"),
        ("255.255.255.255", "not one machine's"),
        ("169.254.169.254", "metadata"),
        ("::ffff:169.254.169.254", "metadata"),
        ("fd00:ec2::254", "metadata"),
    ],
)
def test_an_address_that_must_not_be_dialled_spoils_the_service(host: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Advert.from_service(service("10.0.0.2", host))


def test_port_0_is_junk() -> None:
    with pytest.raises(ValueError, match="its port is 0"):
        Advert.from_service(service("10.0.0.2", port=0))


def test_a_service_without_addresses_is_junk() -> None:
    with pytest.raises(ValueError, match="usable addresses"):
        Advert.from_service(service())


def test_a_service_with_very_many_addresses_is_junk() -> None:
    with pytest.raises(ValueError, match="usable addresses"):
        Advert.from_service(service(*(f"10.0.{i}.2" for i in range(65))))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({b"id": None}, "id is not"),
        ({b"id": b"../../etc"}, "id is not"),
        ({b"id": b"x" * 41}, "id is not"),
        ({b"name": b""}, "name is empty"),
        ({b"name": b"a\x1b[2Jb"}, "name is not printable"),
        ({b"name": b"x" * 201}, "name has over 200 bytes"),
        ({b"name": b"\xff\xfe"}, "not UTF-8"),
        ({b"\xff\xfe": b"1"}, "not UTF-8"),
        ({b"wire": b"-1"}, "wire is not a number"),
        ({b"wire": "٣".encode()}, "wire is not a number"),
        ({b"wire": b"9999999999"}, "wire is out of range"),
        ({b"wire": b"9" * 100}, "wire is not a number"),
    ],
)
def test_a_bad_value_is_junk_with_its_reason(changes: dict[bytes, bytes | None], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Advert.from_service(service("10.0.0.2", txt={**TXT, **changes}))


@pytest.mark.parametrize("key", sorted(TXT))
def test_a_missing_key_is_junk_that_names_it(key: bytes) -> None:
    with pytest.raises(ValueError, match=f"has no {key.decode()}"):
        Advert.from_service(service("10.0.0.2", txt={k: v for k, v in TXT.items() if k != key}))


def test_keys_of_newer_versions_are_passed_over() -> None:
    assert Advert.from_service(service("10.0.0.2", txt={**TXT, b"colour": b"red"})).name == "kitchen"


@given(txt=st.binary(max_size=400), hosts=st.lists(st.ip_addresses().map(lambda ip: ip.packed), max_size=4))
def test_whatever_a_record_holds_it_is_an_advert_or_junk(txt: bytes, hosts: list[bytes]) -> None:
    for kind, reader in ((SERVICE_TYPE, Advert), (COORDINATOR_TYPE, CoordinatorAdvert)):
        received = ServiceInfo(kind, f"x.{kind}", port=1, addresses=hosts, properties=txt)
        with suppress(ValueError):
            assert reader.from_service(received).addresses
