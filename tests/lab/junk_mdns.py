"""A program that fills the network with junk mDNS: `python -m tests.lab.junk_mdns HOST`, until it is ended.

Says "up" once every kind of junk has been sent: services that no node would advertise, packets that are no DNS,
and packets cut short.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sys

from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from layerline.mdns import COORDINATOR_TYPE, SERVICE_TYPE

GROUP = ("224.0.0.251", 5353)
PAUSE_S = 0.02
GOOD: dict[str | bytes, str | bytes] = {"id": "junk", "name": "junk", "version": "1", "wire": "1", "devices": ""}


def junk_services(host: str) -> list[ServiceInfo]:
    """One service for each thing that can be wrong with a record."""
    properties: list[dict[str | bytes, str | bytes]] = [
        {},
        {b"\xff\xfe": b"\xff"},
        {**GOOD, "id": b"\xff\xff"},
        {**GOOD, "id": "../../etc/passwd"},
        {**GOOD, "wire": "1e999"},
        {**GOOD, "name": "\x1b[31mred"},
    ]
    services = [
        ServiceInfo(kind, f"junk{number}.{kind}", port=7355, parsed_addresses=[host], properties=txt)
        for kind in (SERVICE_TYPE, COORDINATOR_TYPE)
        for number, txt in enumerate(properties)
    ]
    places = [("127.0.0.1", 6379), ("169.254.169.254", 80), ("0.0.0.0", 7355), (host, 0), ("255.255.255.255", 7355)]
    for number, (address, port) in enumerate(places):
        name = f"nowhere{number}.{SERVICE_TYPE}"
        services.append(
            ServiceInfo(SERVICE_TYPE, name, port=port, parsed_addresses=[address], properties={**GOOD, "id": name[:8]})
        )
    return services


def junk_packets(seed: int) -> list[bytes]:
    """Packets that are no DNS messages, or not whole ones."""
    chance = random.Random(seed)
    header = b"\0\0\x84\0\0\0\xff\xff\0\0\0\0"
    return [b"", b"\0", chance.randbytes(400), header, header + chance.randbytes(60), header + b"\xc0\x0c" * 20]


async def main() -> None:
    """Advertises and sends junk."""
    host = sys.argv[1]
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))
    zeroconf = AsyncZeroconf(interfaces=[host])
    for service in junk_services(host):
        await zeroconf.async_register_service(service, cooperating_responders=True)
    seed = 0
    while True:
        for packet in junk_packets(seed):
            sender.sendto(packet, GROUP)
        if seed == 0:
            print("up", flush=True)
        seed += 1
        await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(main())
