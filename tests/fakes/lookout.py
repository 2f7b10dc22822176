"""A lookout in memory: adverts appear and vanish when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from layerline.mdns import Advert


class FakeLookout:
    """What `coordinator.discovery.browser.Lookout` asks for, without mDNS."""

    def __init__(self, *adverts: Advert, failure: str = "", junk_reasons: tuple[str, ...] = ()) -> None:
        self.adverts = by_service(adverts)
        self.opened_s = self.newest_s = asyncio.get_running_loop().time()
        self.changed = asyncio.Event()
        self.searched = () if failure else ("eth0 (10.0.0.1)", "lo (127.0.0.1)")
        self.failure = failure
        self.junk = (len(junk_reasons), junk_reasons)

    def appear(self, advert: Advert) -> None:
        """A new advert comes in."""
        self.newest_s = asyncio.get_running_loop().time()
        self.show(*self.adverts.values(), advert)

    def show(self, *adverts: Advert) -> None:
        """These are the adverts from now on."""
        self.adverts = by_service(adverts)
        event, self.changed = self.changed, asyncio.Event()
        event.set()


def advert(name: str, *addresses: str, node_id: str = "", wire_version: int = 1) -> Advert:
    """The advert of a node of `tests.fakes.worlds`."""
    return Advert(
        node_id=node_id or f"id-{name}",
        name=name,
        version="0.1.0",
        wire_version=wire_version,
        devices="cpu",
        addresses=addresses or (f"{name}.lan:7070",),
    )


def by_service(adverts: Iterable[Advert]) -> dict[str, Advert]:
    """Adverts as a lookout has them."""
    return {advert.service_name: advert for advert in adverts}
