"""A peer has a name and addresses, within bounds, and is told by its first one."""

from __future__ import annotations

import pytest

from layerline.addresses import MAX_ADDRESSES
from layerline.peer import Peer

ADDRESSES = tuple(f"10.0.0.2:{port}" for port in range(1, MAX_ADDRESSES + 2))


def test_a_peer_is_told_by_its_first_address() -> None:
    peer = Peer(name="kitchen", addresses=ADDRESSES[:MAX_ADDRESSES])
    assert (str(peer), peer.address) == ("kitchen at 10.0.0.2:1", "10.0.0.2:1")


@pytest.mark.parametrize("addresses", [(), ADDRESSES])
def test_a_peer_without_addresses_or_with_too_many_is_refused(addresses: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="1 to 64 addresses"):
        Peer(name="kitchen", addresses=addresses)
