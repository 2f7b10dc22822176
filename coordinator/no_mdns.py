"""The lookout of a coordinator that was told not to use mDNS: it sees nothing, and says why."""

from __future__ import annotations

import asyncio

from layerline.mdns import Advert


class NoMdns:
    """A `coordinator.discovery.browser.Lookout` that never changes."""

    adverts: tuple[Advert, ...] = ()
    searched: tuple[str, ...] = ()
    failure = "it was turned off with --no-mdns"
    junk: tuple[int, tuple[str, ...]] = (0, ())

    def __init__(self, now_s: float) -> None:
        self.opened_s = now_s
        self.newest_s = now_s
        self.changed = asyncio.Event()
