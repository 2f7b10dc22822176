"""What waits to be told to a coordinator is bounded."""

from __future__ import annotations

import pytest

from layerline.errors import OverloadedError
from layerline.hold import Heartbeat, LoadProgress, Unloaded
from node.daemon.hold.outbox import MAX_EVENTS, Outbox


async def test_an_outbox_that_nobody_reads_says_so() -> None:
    outbox = Outbox("kitchen")
    for number in range(MAX_EVENTS + 1):
        outbox.put(Unloaded(command=number))
    with pytest.raises(OverloadedError):
        await outbox.next()


async def test_progress_and_heartbeats_give_way_to_newer_ones_and_nothing_else_does() -> None:
    outbox = Outbox("kitchen")
    for number in range(MAX_EVENTS * 2):
        outbox.put(LoadProgress(command=1, done_bytes=number, total_bytes=1000))
        outbox.put(Heartbeat())
    outbox.put(Unloaded(command=1))
    taken = [await outbox.next() for _ in range(3)]
    assert taken == [
        LoadProgress(command=1, done_bytes=MAX_EVENTS * 2 - 1, total_bytes=1000),
        Heartbeat(),
        Unloaded(command=1),
    ]
