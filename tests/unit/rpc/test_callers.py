"""No machine takes more places of a server than it may."""

from __future__ import annotations

import contextlib

import pytest

from layerline.errors import OverloadedError
from layerline.rpc.callers import Callers


def test_a_machine_has_so_many_calls_at_once_from_whatever_port() -> None:
    callers = Callers(2)
    with callers.one_more("ipv4:10.0.0.2:1"), callers.one_more("ipv4:10.0.0.2:2"):
        with (
            pytest.raises(OverloadedError, match=r"Over 2 calls from ipv4:10.0.0.2 "),
            callers.one_more("ipv4:10.0.0.2:3"),
        ):
            pass
        with callers.one_more("ipv4:10.0.0.3:1"), callers.one_more("ipv6:%5Bfe80::1%5D:1"):
            pass


def test_a_call_that_ended_makes_room_however_it_ended() -> None:
    callers = Callers(1)
    for _ in range(3):
        with contextlib.suppress(ZeroDivisionError), callers.one_more("ipv4:10.0.0.2:1"):
            raise ZeroDivisionError
    with callers.one_more("ipv4:10.0.0.2:1"):
        pass
