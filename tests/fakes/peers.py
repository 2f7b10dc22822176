"""Peers at given addresses."""

from __future__ import annotations

from layerline.peer import Peer


def peer_at(*addresses: str, name: str) -> Peer:
    """The node of that name, to be dialled there."""
    return Peer(name=name, addresses=addresses)
