"""A hold as its coordinator has it: how long a node may take, and that whatever fails there is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from coordinator.hold_deadlines import HOLD_DEADLINES
from coordinator.node_hold import HoldCall, NodeHold
from layerline.errors import DeadlineError, InternalError, LayerlineError
from layerline.hold import Heartbeat, HoldEvent, Loaded, LoadProgress, Welcome
from layerline.rpc.convert import to_union
from layerline.rpc.v1 import node_pb2
from tests.fakes.daemon_parts import stage_spec
from tests.fakes.peers import peer_at
from tests.fakes.virtual_time import run_in_virtual_time

PAUSE_S = 5.0
LOADED = Loaded(command=1, stage=1, data_port=4000, weights_bytes=1, kv_bytes=1, adopted=False)


class Panic(BaseException):
    """As a Rust library's is, which is no Exception."""


class FakeCall:
    """A node that says these events, one every few seconds, and then nothing but that it lives."""

    def __init__(self, events: Iterable[HoldEvent | BaseException]) -> None:
        self._events = iter(events)

    async def read(self) -> node_pb2.HoldEvent:
        await asyncio.sleep(PAUSE_S)
        event = next(self._events, Heartbeat())
        if isinstance(event, BaseException):
            raise event
        return to_union(event, node_pb2.HoldEvent)

    async def write(self, message: node_pb2.HoldCommand) -> None:
        pass


def progress(done_bytes: Iterable[int]) -> list[HoldEvent | BaseException]:
    return [LoadProgress(command=1, done_bytes=done, total_bytes=10_000) for done in done_bytes]


def loaded(
    events: Iterable[HoldEvent | BaseException], *, on_lost: Callable[[LayerlineError], None] = lambda _: None
) -> tuple[Loaded | LayerlineError, float]:
    """What a load comes to on a node that says `events`, and how many seconds it takes."""

    async def run() -> tuple[Loaded | LayerlineError, float]:
        clock = asyncio.get_running_loop().time
        began_s = clock()
        call: Any = FakeCall(events)
        welcome = Welcome(node_id="a1", last_epoch=0)
        session = NodeHold(cast("HoldCall", call), peer_at("h:1", name="a"), welcome=welcome, on_lost=on_lost)
        attending = asyncio.create_task(session.attend())
        try:
            return await session.load(1, stage_spec(), lambda _done, _total: None), clock() - began_s
        except LayerlineError as error:
            return error, clock() - began_s
        finally:
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)

    return run_in_virtual_time(run())


@pytest.mark.parametrize("numbers", [[7] * 200, [7, 3] * 100, [0] * 200])
def test_progress_of_a_load_that_does_not_grow_is_none(numbers: list[int]) -> None:
    outcome, took_s = loaded(progress(numbers))
    assert isinstance(outcome, DeadlineError)
    assert "Node a at h:1 did not load its layers within 120 s." in str(outcome)
    assert took_s <= HOLD_DEADLINES.load_silence_s + 2 * PAUSE_S


def test_a_load_that_grows_may_take_long() -> None:
    outcome, took_s = loaded([*progress(range(200)), LOADED])
    assert outcome == LOADED
    assert took_s == 201 * PAUSE_S


def test_whatever_a_hold_meets_is_told_to_who_waits() -> None:
    told: list[LayerlineError] = []
    outcome, _ = loaded([Panic("index out of bounds")], on_lost=told.append)
    assert isinstance(outcome, InternalError)
    assert "index out of bounds" in outcome.message
    assert told == [outcome]


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_the_process_does_so(ending: BaseException) -> None:
    with pytest.raises(type(ending)):
        loaded([ending])
