"""What layerline says about itself by mDNS: the adverts of nodes and of coordinators, to and from services.

Anybody on the network can send these records, so every field is checked before it is believed; junk is a
ValueError with the reason. Knows no sockets and no liveness: an advert is a hint where to ask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zeroconf import ServiceInfo

from layerline.addresses import MAX_ADDRESSES, ip_of, is_loopback, join_address, require_peer_host, split_address
from layerline.checks import require
from layerline.interfaces import reach_rank

SERVICE_TYPE = "_layerline._tcp.local."
COORDINATOR_TYPE = "_layerline-coord._tcp.local."
MAX_TXT_BYTES = 200  # of one value; with its key it must fit the 255 bytes of a TXT string
MAX_LABEL_BYTES = 40  # a DNS label has at most 63, and the host's label has this one and more in it

_NODE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Advert:
    """A node's advert. `devices` is a short summary for people; `addresses` are host:port, best first."""

    node_id: str
    name: str
    version: str
    wire_version: int
    devices: str
    addresses: tuple[str, ...]

    def __post_init__(self) -> None:
        require(bool(_NODE_ID.fullmatch(self.node_id)), "id is not 1 to 40 letters, digits, - and _")
        _require_text(name=self.name, version=self.version)
        _require_text(devices=self.devices, may_be_empty=True)
        require(0 <= self.wire_version < 1 << 32, "wire is out of range")
        require(0 < len(self.addresses) <= MAX_ADDRESSES, f"not 1 to {MAX_ADDRESSES} usable addresses")

    @property
    def service_name(self) -> str:
        """The name of the mDNS service: two daemons with one id collide on it, which zeroconf refuses."""
        return f"{self.node_id}.{SERVICE_TYPE}"

    def to_txt(self) -> dict[str, str]:
        """The TXT record."""
        return {
            "id": self.node_id,
            "name": self.name,
            "version": self.version,
            "wire": str(self.wire_version),
            "devices": self.devices,
        }

    def to_service(self) -> ServiceInfo:
        """The service to register with zeroconf; all addresses have one port."""
        return _to_service(SERVICE_TYPE, self.service_name, self.to_txt(), self.addresses)

    @classmethod
    def from_service(cls, service: ServiceInfo, *, from_here: bool = False) -> Advert:
        """The advert that `service` carries; ValueError says why it is junk. `from_here`: it came over loopback."""
        txt = _checked_txt(service.properties)
        return cls(
            node_id=_text(txt, "id"),
            name=_text(txt, "name"),
            version=_text(txt, "version"),
            wire_version=_number(txt, "wire"),
            devices=_text(txt, "devices"),
            addresses=_checked_addresses(service, from_here=from_here),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorAdvert:
    """A coordinator's advert; `model` is empty while it has none loaded."""

    name: str
    model: str
    wire_version: int
    addresses: tuple[str, ...]

    def __post_init__(self) -> None:
        _require_text(name=self.name)
        _require_text(model=self.model, may_be_empty=True)
        require(0 <= self.wire_version < 1 << 32, "wire is out of range")
        require(0 < len(self.addresses) <= MAX_ADDRESSES, f"not 1 to {MAX_ADDRESSES} usable addresses")

    @property
    def service_name(self) -> str:
        """The name of the mDNS service; register it with `allow_name_change`, since names are not unique."""
        label = self.name.replace(".", "-").encode()[:MAX_LABEL_BYTES].decode(errors="ignore")
        return f"{label}.{COORDINATOR_TYPE}"

    def to_txt(self) -> dict[str, str]:
        """The TXT record."""
        return {"name": self.name, "model": self.model, "wire": str(self.wire_version)}

    def to_service(self) -> ServiceInfo:
        """The service to register with zeroconf; all addresses have one port."""
        return _to_service(COORDINATOR_TYPE, self.service_name, self.to_txt(), self.addresses)

    @classmethod
    def from_service(cls, service: ServiceInfo, *, from_here: bool = False) -> CoordinatorAdvert:
        """The advert that `service` carries; ValueError says why it is junk. `from_here`: it came over loopback."""
        txt = _checked_txt(service.properties)
        return cls(
            name=_text(txt, "name"),
            model=_text(txt, "model"),
            wire_version=_number(txt, "wire"),
            addresses=_checked_addresses(service, from_here=from_here),
        )


def _to_service(kind: str, name: str, txt: dict[str, str], addresses: Sequence[str]) -> ServiceInfo:
    hosts, ports = zip(*(split_address(address) for address in addresses), strict=True)
    require(len(set(ports)) == 1, "an mDNS service has one port")
    bare_hosts = list(dict.fromkeys(host.partition("%")[0] for host in hosts))  # whoever receives it adds its own scope
    server = f"{kind[1:].partition('.')[0]}-{name.partition('.')[0]}-{ports[0]}.local."
    return ServiceInfo(kind, name, port=ports[0], parsed_addresses=bare_hosts, properties=txt, server=server)


def _require_text(*, may_be_empty: bool = False, **fields: str) -> None:
    for key, value in fields.items():
        require(may_be_empty or bool(value), f"{key} is empty")
        require(value.isprintable(), f"{key} is not printable")
        require(len(value.encode()) <= MAX_TXT_BYTES, f"{key} has over {MAX_TXT_BYTES} bytes")


def _checked_txt(properties: Mapping[bytes, bytes | None]) -> dict[str, str]:
    try:
        return {key.decode(): (value or b"").decode() for key, value in properties.items()}
    except UnicodeDecodeError:
        raise ValueError("its TXT record is not UTF-8") from None


def _text(txt: Mapping[str, str], key: str) -> str:
    require(key in txt, f"its TXT record has no {key}")
    return txt[key]


def _number(txt: Mapping[str, str], key: str) -> int:
    text = _text(txt, key)
    require(text.isascii() and text.isdigit() and len(text) <= 10, f"{key} is not a number")
    return int(text)


def names_loopback_alone(service: ServiceInfo) -> bool:
    """Whether all the addresses of `service` are loopback ones, which mean another machine to everybody."""
    hosts = service.parsed_scoped_addresses()
    return bool(hosts) and all(is_loopback(host) for host in hosts)


def _checked_addresses(service: ServiceInfo, *, from_here: bool) -> tuple[str, ...]:
    """host:port of every address one can dial; one address that must never be dialled spoils the service."""
    port = service.port
    require(port is not None and 0 < port < 1 << 16, f"its port is {port}")
    hosts = service.parsed_scoped_addresses()
    outward = [host for host in hosts if not is_loopback(host)] or hosts
    for host in outward:
        require_peer_host(host, loopback=from_here)
    dialable = sorted({host for host in outward if _has_scope(host)}, key=lambda host: (reach_rank(host), host))
    return tuple(join_address(host, port or 0) for host in dialable)


def _has_scope(host: str) -> bool:
    """A link-local IPv6 address that came over IPv4 has no scope, so nobody knows which link it is on."""
    ip = ip_of(host)
    return "%" in host or ip.version == 4 or not ip.is_link_local
