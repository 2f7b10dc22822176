"""This machine's name, made fit to be a node's or a coordinator's, whatever the machine is called."""

from __future__ import annotations

import socket

MAX_HOST_NAME_BYTES = 63
INSTEAD = "machine"
_TAKEN = frozenset("=,")  # by `--layers a=0-14,b=15-29`


def host_name() -> str:
    """The first part of the host's name, short and printable; what cannot be in a name is a hyphen."""
    first = socket.gethostname().partition(".")[0]
    name = "".join(letter if letter.isprintable() and letter not in _TAKEN else "-" for letter in first)
    name = name.encode(errors="replace")[:MAX_HOST_NAME_BYTES].decode(errors="ignore").strip()
    return name if name.strip("-") else INSTEAD
