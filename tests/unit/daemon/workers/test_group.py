"""The ranks of a stage live and die together, and what is told is what befell the first of them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest

from layerline.errors import LayerlineError, ModelCorruptError, StageFailedError
from layerline.hold import Place
from node.daemon.workers.group import WorkerGroup
from node.daemon.workers.patience import PATIENCE, Patience
from node.pipe import Placed, Start, Started
from tests.fakes.daemon_parts import stage_spec, worker_command

pytestmark = pytest.mark.system

DEADLINE_S = 20
EVERY_RANK = [(2, 0), (2, 1), *(pytest.param(3, rank, marks=pytest.mark.slow) for rank in range(3))]


class Lost:
    """What was said of a lost group, and a way to wait for it."""

    def __init__(self) -> None:
        self.errors: list[LayerlineError] = []
        self.told = asyncio.Event()

    def __call__(self, error: LayerlineError) -> None:
        self.errors.append(error)
        self.told.set()


def children() -> list[psutil.Process]:
    """Those of this process that live, the eldest first."""
    living = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return sorted(living, key=lambda child: child.pid)


async def environment_of(process: psutil.Process) -> dict[str, str]:
    """Its environment, which the system shows a moment after the program has begun."""
    while not (environment := process.environ()):  # noqa: ASYNC110  # nothing tells when
        await asyncio.sleep(0.001)
    return environment


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def group(
    count: int, *mode: str, lost: Lost | None = None, patience: Patience = PATIENCE
) -> AsyncIterator[WorkerGroup]:
    """A group of that many ranks; it leaves neither processes nor descriptors behind."""
    before = descriptors()
    threads = {f"cpu:{rank}": rank + 1 for rank in range(count)} if count > 1 else {"cpu": 1}
    async with asyncio.timeout(DEADLINE_S):
        made = await WorkerGroup.spawn(
            worker_command(*mode), {}, threads, node="kitchen", on_lost=lost or Lost(), patience=patience
        )
        try:
            yield made
        finally:
            await made.stop()
    assert children() == []
    await asyncio.sleep(0)  # the transports of ended pipes close in the next turn
    assert descriptors() <= before


def start(count: int) -> Start:
    spec = dataclasses.replace(stage_spec(), devices=tuple(f"cpu:{rank}" for rank in range(count)))
    return Start(spec=spec, card_path="/c", model_path="/m", host="127.0.0.1", node="kitchen")


def place() -> Place:
    return Place(epoch=1, plan_key=b"k" * 16, stage_index=0, stage_count=1, next=None)


def ignore(_done_bytes: int, _total_bytes: int) -> None:
    pass


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_a_group_loads_takes_places_and_is_stopped_without_a_word(count: int) -> None:
    lost, progress = Lost(), []
    async with group(count, lost=lost) as ranks:
        started = await ranks.start(start(count), lambda done, total: progress.append((done, total)))
        assert started == Started(port=4711, weights_bytes=1000 * count, kv_bytes=8 * count)
        assert progress[-1] == (1000 * count, 1000 * count)
        assert {total for _, total in progress} == {1000 * count}
        assert await ranks.place(place()) == Placed(next_address="")
        await ranks.vacate()
        assert len(children()) == count
    assert lost.errors == []


@pytest.mark.parametrize(("count", "rank"), EVERY_RANK)
async def test_a_rank_that_is_killed_while_idle_takes_the_others_with_it(count: int, rank: int) -> None:
    lost = Lost()
    async with group(count, lost=lost) as ranks:
        await ranks.start(start(count), ignore)
        children()[rank].kill()
        await lost.told.wait()
        assert children() == []
        (error,) = lost.errors
        assert isinstance(error, StageFailedError)
        assert f"Rank {rank} (cpu:{rank}) of node kitchen was killed (SIGKILL)" in str(error)
        assert ranks.lost is error
        with pytest.raises(StageFailedError, match=rf"Rank {rank} "):
            await ranks.place(place())
    assert len(lost.errors) == 1


@pytest.mark.parametrize(("count", "rank"), EVERY_RANK)
async def test_a_rank_that_fails_is_quoted(count: int, rank: int) -> None:
    lost = Lost()
    async with group(count, lost=lost) as ranks:
        await ranks.start(start(count), ignore)
        children()[rank].send_signal(signal.SIGUSR1)
        await lost.told.wait()
        assert children() == []
    (error,) = lost.errors
    assert str(error) == f"Rank {rank} (cpu:{rank}) of node kitchen: A step of 3 rows failed (boom). Be lucky."
    assert error.node == "kitchen"


@pytest.mark.parametrize(("count", "rank"), EVERY_RANK)
async def test_a_rank_that_is_killed_while_loading(count: int, rank: int) -> None:
    async with group(count, "dawdles") as ranks:
        loading = asyncio.create_task(ranks.start(start(count), ignore))
        await asyncio.sleep(0)
        children()[rank].kill()
        with pytest.raises(StageFailedError, match=rf"Rank {rank} \(cpu:{rank}\) of node kitchen was killed"):
            await loading


@pytest.mark.parametrize(("count", "rank"), EVERY_RANK)
async def test_a_rank_that_dies_at_its_start_is_named_with_its_last_word(count: int, rank: int) -> None:
    async with group(count, "dies", str(rank)) as ranks:
        with pytest.raises(StageFailedError, match=rf"Rank {rank} .* ended by itself with exit code 3; .*luck"):
            await ranks.start(start(count), ignore)


@pytest.mark.parametrize(("count", "rank"), EVERY_RANK)
async def test_a_rank_that_refuses_is_quoted_and_keeps_its_kind_of_error(count: int, rank: int) -> None:
    async with group(count, "refuses", str(rank)) as ranks:
        with pytest.raises(ModelCorruptError, match=rf"Rank {rank} .*: The file is short\. Copy it anew\."):
            await ranks.start(start(count), ignore)


@pytest.mark.parametrize(("count", "rank"), EVERY_RANK)
async def test_a_rank_that_freezes_while_loading_is_named(count: int, rank: int) -> None:
    async with group(count, "freezes", str(rank), patience=Patience(frozen_s=0.5)) as ranks:
        with pytest.raises(StageFailedError, match=rf"Rank {rank} .* was frozen: its process was stopped"):
            await ranks.start(start(count), ignore)


async def test_a_frozen_rank_is_ended_with_the_others() -> None:
    async with group(2) as ranks:
        await ranks.start(start(2), ignore)
        children()[1].send_signal(signal.SIGSTOP)


async def test_a_place_that_is_being_taken_hears_of_the_rank_that_was_lost() -> None:
    async with group(2, "dreams") as ranks:
        await ranks.start(start(2), ignore)
        placing = asyncio.create_task(ranks.place(place()))
        await asyncio.sleep(0)
        children()[1].kill()
        with pytest.raises(StageFailedError, match=r"Rank 1 .* was killed"):
            await placing


async def test_a_group_that_cannot_be_started_leaves_nothing() -> None:
    before = descriptors()
    with pytest.raises(StageFailedError, match="Node kitchen cannot start a worker"):
        await WorkerGroup.spawn(("/no/such/program",), {}, {"cpu:0": 1, "cpu:1": 1}, node="kitchen", on_lost=Lost())
    assert descriptors() == before
    assert children() == []


async def test_every_rank_has_its_number_its_threads_and_its_descriptors() -> None:
    async with group(3) as ranks:
        starts = [seat.start_of(start(3)) for seat, _ in ranks._ranks]
        assert [(told.rank, told.threads, len(told.lines)) for told in starts] == [(0, 1, 2), (1, 2, 1), (2, 3, 1)]
        assert len({told.shared for told in starts}) == 1
        for told, process in zip(starts, children(), strict=True):
            assert (await environment_of(process))["OMP_NUM_THREADS"] == str(told.threads)
            has = set(os.listdir(f"/proc/{process.pid}/fd"))
            assert {str(descriptor) for descriptor in (told.shared, *told.lines)} <= has
            for other in starts:
                assert other is told or not has & {str(line) for line in other.lines}
