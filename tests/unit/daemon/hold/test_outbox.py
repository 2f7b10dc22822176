"""What waits to be told to a coordinator is bounded."""

from __future__ import annotations

import pytest

from layerline.errors import (
    OverloadedError,
)
from layerline.holding import (
    HoldHello,
    Unloaded,
)
from node.daemon.hold.outbox import MAX_EVENTS, Outbox

HELLO = HoldHello.of("desk")
ADDRESS = "10.0.0.9:5000"


async def test_an_outbox_that_nobody_reads_says_so() -> None:
    outbox = Outbox()
    for number in range(MAX_EVENTS + 1):
        outbox.put(Unloaded(command=number))
    with pytest.raises(OverloadedError):
        await outbox.next()
