"""A worker process is told what to do, and whatever it does instead is put into words."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest

from layerline.errors import LayerlineError, ModelCorruptError, StageFailedError
from layerline.hold import Place
from layerline.peer import Peer
from node.daemon.workers.patience import PATIENCE, Patience
from node.daemon.workers.process import WorkerProcess
from node.pipe import Placed, Start, Started
from tests.fakes.daemon_parts import stage_spec, worker_command

pytestmark = pytest.mark.system

DEADLINE_S = 60


class Panic(BaseException):
    """As a Rust library's is, which is no Exception."""


class Lost:
    """What was said of a lost worker, and a way to wait for it."""

    def __init__(self) -> None:
        self.errors: list[LayerlineError] = []
        self.told = asyncio.Event()

    def __call__(self, error: LayerlineError) -> None:
        self.errors.append(error)
        self.told.set()


@asynccontextmanager
async def running(
    mode: str, lost: Lost | None = None, patience: Patience = PATIENCE
) -> AsyncIterator[tuple[WorkerProcess, psutil.Process]]:
    known = set(psutil.Process().children())
    worker = await WorkerProcess.spawn(
        worker_command(mode), {}, node="kitchen", on_lost=lost or Lost(), patience=patience
    )
    (process,) = set(psutil.Process().children()) - known
    async with asyncio.timeout(DEADLINE_S):
        try:
            yield worker, process
        finally:
            await worker.stop()
    assert not process.is_running()


def start() -> Start:
    return Start(spec=stage_spec(), card_path="/c", model_path="/m", host="127.0.0.1", threads=1, node="kitchen")


def place() -> Place:
    following = Peer(name="desk", addresses=("10.0.0.3:4000",))
    return Place(epoch=1, plan_key=b"k" * 16, stage_index=0, stage_count=2, next=following)


def ignore(_done_bytes: int, _total_bytes: int) -> None:
    pass


async def test_a_worker_loads_takes_places_and_is_stopped_without_a_word() -> None:
    lost, progress = Lost(), []
    async with running("good", lost) as (worker, _):
        started = await worker.start(start(), lambda done, total: progress.append((done, total)))
        assert started == Started(port=4711, weights_bytes=1000, kv_bytes=8)
        assert worker.resident_bytes > 1 << 20
        assert progress == [(500, 1000), (1000, 1000)]
        assert await worker.place(place()) == Placed(next_address="10.0.0.3:4000")
        await worker.vacate()
        assert await worker.place(place()) == Placed(next_address="10.0.0.3:4000")
    assert lost.errors == []
    assert worker.resident_bytes == 0


async def test_a_refusal_is_the_workers_own_error_with_the_node() -> None:
    async with running("refuses") as (worker, _):
        with pytest.raises(ModelCorruptError, match=r"The file is short\. Copy it anew\.") as caught:
            await worker.start(start(), ignore)
    assert caught.value.node == "kitchen"


async def test_a_worker_that_dies_at_its_start_is_named_with_its_last_word() -> None:
    async with running("dies") as (worker, _):
        with pytest.raises(
            StageFailedError, match=r'kitchen ended by itself with exit code 3; .*"out of \\x1b\[31mluck"'
        ):
            await worker.start(start(), ignore)


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGKILL, r"killed \(SIGKILL\), perhaps because .* memory.*smaller --memory"), (signal.SIGSEGV, "SIGSEGV")],
)
async def test_a_killed_worker_is_told_at_once(number: signal.Signals, words: str) -> None:
    lost = Lost()
    async with running("good", lost) as (worker, process):
        await worker.start(start(), ignore)
        process.send_signal(number)
        await lost.told.wait()
        with pytest.raises(StageFailedError, match=words):
            await worker.place(place())
    assert len(lost.errors) == 1


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("stops", r"was frozen: its process was stopped for 0\.5 s"),
        ("freezes", r"was frozen: its process was stopped for 0\.5 s"),
        ("sleeps", r"was frozen: it did nothing and gave no sign of life for 0\.5 s"),
    ],
)
async def test_a_frozen_worker_is_ended_at_whatever_point(mode: str, words: str) -> None:
    lost = Lost()
    async with running(mode, lost, Patience(frozen_s=0.5)) as (worker, _):
        with pytest.raises(StageFailedError, match=words):
            await worker.start(start(), ignore)
        await lost.told.wait()
    assert len(lost.errors) == 1


async def test_a_worker_that_is_too_busy_to_say_that_it_lives_is_not_frozen() -> None:
    lost = Lost()
    async with running("computes", lost, Patience(frozen_s=0.5)) as (worker, _):
        assert await worker.start(start(), ignore) == Started(port=4711, weights_bytes=1000, kv_bytes=8)
    assert lost.errors == []


async def test_a_worker_that_says_what_is_no_message_is_ended() -> None:
    async with running("babbles") as (worker, _):
        with pytest.raises(StageFailedError, match="SIGKILL"):
            await worker.start(start(), ignore)


@pytest.mark.parametrize("mode", ["dawdles", "repeats"])
async def test_a_worker_that_stands_still_while_loading_is_ended(mode: str) -> None:
    async with running(mode, patience=Patience(progress_s=0.3)) as (worker, _):
        with pytest.raises(StageFailedError, match="did not get on with loading"):
            await worker.start(start(), ignore)


async def test_a_worker_of_which_a_word_cannot_be_taken_is_ended() -> None:
    def panics(_done_bytes: int, _total_bytes: int) -> None:
        raise Panic

    async with running("dawdles") as (worker, _):
        with pytest.raises(StageFailedError, match="SIGKILL"):
            await worker.start(start(), panics)


async def test_a_worker_that_does_not_start_is_ended() -> None:
    async with running("mute", patience=Patience(start_s=0.3)) as (worker, _):
        with pytest.raises(StageFailedError, match="did not start for 0 s and was ended"):
            await worker.start(start(), ignore)


async def test_a_worker_that_does_not_take_its_place_is_ended() -> None:
    lost = Lost()
    async with running("dreams", lost, Patience(place_s=0.1)) as (worker, _):
        await worker.start(start(), ignore)
        with pytest.raises(StageFailedError, match="did not take its place"):
            await worker.place(place())
        await lost.told.wait()


async def test_an_answer_that_nobody_waits_for_any_more_is_passed_over() -> None:
    async with running("good") as (worker, process):
        await worker.start(start(), ignore)
        process.suspend()
        placing = asyncio.create_task(worker.place(place()))
        await asyncio.sleep(0)
        placing.cancel()
        await asyncio.wait({placing})
        process.resume()
        other = Place(epoch=2, plan_key=b"k" * 16, stage_index=0, stage_count=1, next=None)
        assert await worker.place(other) == Placed(next_address="")


@pytest.mark.parametrize("mode", ["forgets", "lags"])
async def test_an_answer_is_matched_to_its_command(mode: str) -> None:
    """Whether the answer to an earlier command never comes, or comes late and again, the next one has its own."""
    async with running(mode) as (worker, _):
        await worker.start(start(), ignore)
        placing = asyncio.create_task(worker.place(place()))
        await asyncio.wait({placing}, timeout=0 if mode == "forgets" else DEADLINE_S)
        placing.cancel()
        await asyncio.wait({placing})
        other = Place(epoch=2, plan_key=b"k" * 16, stage_index=0, stage_count=1, next=None)
        assert await worker.place(other) == Placed(next_address="")


async def test_a_worker_that_answers_what_it_was_not_told_is_ended() -> None:
    async with running("invents") as (worker, _):
        await worker.start(start(), ignore)
        with pytest.raises(StageFailedError, match="SIGKILL"):
            await worker.place(place())


async def test_a_stubborn_worker_is_ended_all_the_same() -> None:
    async with running("stubborn", patience=Patience(end_s=0.1, terminate_s=0.1)) as (worker, _):
        await worker.start(start(), ignore)


async def test_a_stop_that_is_cancelled_still_ends_the_worker() -> None:
    async with running("stubborn") as (worker, process):
        await worker.start(start(), ignore)
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait({stopping})
        await asyncio.to_thread(process.wait, DEADLINE_S)


async def test_a_command_that_cannot_be_run_is_an_error_of_the_node() -> None:
    with pytest.raises(StageFailedError, match="Node kitchen cannot start a worker"):
        await WorkerProcess.spawn(("/no/such/program",), {}, node="kitchen", on_lost=Lost())
