"""How a coordinator was told to be."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass, field


def _own_name() -> str:
    # The end makes it unique, so that a node's "held by" can be told to be about ourselves.
    return f"{socket.gethostname()}-{secrets.token_hex(2)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorSettings:
    """`nodes` are host:port of nodes to ask beside those found by mDNS; `mdns` False asks only those."""

    name: str = field(default_factory=_own_name)
    nodes: tuple[str, ...] = ()
    mdns: bool = True
