"""How many calls each machine has under way, so that none takes every place a server has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from layerline.errors import OverloadedError

RETRY_AFTER_S = 5


class Callers:
    """Counts calls by the host they came from; `most` of each at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: Counter[str] = Counter()

    @contextmanager
    def one_more(self, peer: str) -> Iterator[None]:
        """A call from `peer`, as gRPC writes it (ipv4:10.0.0.2:4242), for the time of the block.

        OverloadedError if its host has as many under way as it may.
        """
        host = peer.rpartition(":")[0]
        if self._calls[host] >= self._most:
            raise OverloadedError(
                f"Over {self._most} calls from {host} are under way.",
                remedy="Wait until they have ended.",
                retry_after_s=RETRY_AFTER_S,
            )
        self._calls[host] += 1
        try:
            yield
        finally:
            self._calls[host] -= 1
            if not self._calls[host]:
                del self._calls[host]
