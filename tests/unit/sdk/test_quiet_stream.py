"""Keepalive pings on a stream that says nothing for long do not make the server end the connection."""

from __future__ import annotations

import queue

import pytest

from tests.fakes.coordinator_service import ANSWER, FakeCoordinator, Hang, serving
from tests.fakes.hurried_transport import hurried_client

PING_MS = 1_050  # just above what the server allows, so that the strikes it might count come soon
THREE_PINGS_S = 4.0


@pytest.mark.slow
def test_a_quiet_stream_outlives_its_pings() -> None:
    fake = FakeCoordinator(answers=[(ANSWER[0], Hang())])
    faster = {"grpc.keepalive_time_ms": PING_MS}
    with serving(fake) as address, hurried_client(address, faster) as client:
        stream = client.generate("x", stream=True)
        assert next(stream) == ANSWER[0]
        with pytest.raises(queue.Empty):
            fake.cancelled.get(timeout=THREE_PINGS_S)
        stream.close()
        assert fake.cancelled.get(timeout=20) == "cancelled"
