"""A node, or the stage on it, as somebody else reaches it."""

from __future__ import annotations

from dataclasses import dataclass

from layerline.addresses import MAX_ADDRESSES
from layerline.checks import require, require_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """The name of a node, for people, and host:port of one port of it, to be tried in order."""

    name: str
    addresses: tuple[str, ...]

    def __post_init__(self) -> None:
        require_name(self.name, "node name")
        require(0 < len(self.addresses) <= MAX_ADDRESSES, f"a peer needs 1 to {MAX_ADDRESSES} addresses")

    @property
    def address(self) -> str:
        """The first of its addresses."""
        return self.addresses[0]

    def __str__(self) -> str:
        return f"{self.name} at {self.address}"
