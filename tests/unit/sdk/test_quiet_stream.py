"""Keepalive pings on a stream that says nothing for long do not make the server end the connection."""

from __future__ import annotations

import queue

import pytest

from layerline import Client
from layerline.rpc import channels
from tests.fakes.coordinator_service import ANSWER, FakeCoordinator, Hang, serving

PING_MS = 1_050  # just above what the server allows, so that the strikes it might count come soon
THREE_PINGS_S = 4.0


def test_a_quiet_stream_outlives_its_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    faster = [*(dict(channels.CLIENT_OPTIONS) | {"grpc.keepalive_time_ms": PING_MS}).items()]
    monkeypatch.setattr(channels, "CLIENT_OPTIONS", faster)
    fake = FakeCoordinator(answers=[(ANSWER[0], Hang())])
    with serving(fake) as address, Client(address) as client:
        stream = client.generate("x", stream=True)
        assert next(stream) == ANSWER[0]
        with pytest.raises(queue.Empty):
            fake.cancelled.get(timeout=THREE_PINGS_S)
        stream.close()
        assert fake.cancelled.get(timeout=20) == "cancelled"
