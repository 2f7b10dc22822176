"""How a coordinator was told to be."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from coordinator.http_settings import HttpSettings
from layerline.checks import require_name
from layerline.errors import UsageError
from layerline.host_name import host_name


def _own_name() -> str:
    # The end makes it unique, so that a node's "held by" can be told to be about ourselves.
    return f"{host_name()}-{secrets.token_hex(2)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorSettings:
    """`nodes` are host:port of nodes to ask beside those found by mDNS; `mdns` False asks only those.

    `http` says where HTTP is served, None for nowhere; at the end what is being answered has `drain_s`. `chat_template`
    stands in the place of the model's own, if it is not empty.

    UsageError for a name that cannot be told to others.
    """

    name: str = field(default_factory=_own_name)
    nodes: tuple[str, ...] = ()
    mdns: bool = True
    http: HttpSettings | None = None
    drain_s: float = 0.0
    chat_template: str = ""

    def __post_init__(self) -> None:
        try:
            require_name(self.name, "the coordinator's name")
        except ValueError as error:
            raise UsageError(f"This cannot be: {error}.", remedy="Choose another with --name.") from None
