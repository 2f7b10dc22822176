"""Dialling a data port: all of its addresses share one deadline, however long connecting takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from layerline.errors import NodeUnreachableError
from layerline.hold import Loaded
from layerline.peer import Peer
from layerline.rpc import links


async def test_addresses_that_never_connect_are_given_up_at_the_deadline_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def for_ever(_addresses: Any, _connect: Callable[[str], Any]) -> None:
        await asyncio.get_running_loop().create_future()

    async def open_link(_address: str) -> None:
        raise AssertionError("nothing is connected")

    monkeypatch.setattr(links, "race", for_ever)
    peer = Peer(name="kitchen", addresses=("10.0.0.1:7000", "10.0.0.2:7000"))
    async with asyncio.timeout(20.0):
        with pytest.raises(NodeUnreachableError, match=r"reached \(no answer within 0\.05 s\)") as raised:
            await links._first_that_answers(peer, open_link, 0.05)
    assert raised.value.node == "kitchen"


@pytest.mark.parametrize("wrong", [{"data_port": 0}, {"data_port": 70_000}, {"kv_bytes": -1}, {"weights_bytes": -1}])
def test_a_stage_is_loaded_on_a_port_and_takes_no_negative_memory(wrong: dict[str, int]) -> None:
    right: dict[str, Any] = {"command": 1, "stage": 1, "data_port": 1, "weights_bytes": 0, "kv_bytes": 0}
    Loaded(**right, adopted=True)
    with pytest.raises(ValueError, match=r"no port|negative"):
        Loaded(**{**right, **wrong}, adopted=True)
