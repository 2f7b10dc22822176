"""Real ranks that are killed, freeze or fail: the error names the rank and why, and the node loads again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import psutil
import pytest

from layerline.errors import LayerlineError, ProtocolError, StageFailedError
from layerline.models.card import ModelCard
from layerline.models.index import index_model
from node.daemon.workers.patience import Patience
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.rank_node import RankNode

pytestmark = pytest.mark.system

DEADLINE_S = 90.0
SILENCE_S = 2.0
STOPPED = "was frozen: its process was stopped for 1 s"
PAUSE_S = 3.5  # the bound on noticing is 5 s
BRIEF = Patience(frozen_s=1.0)
PROMPT = (5, 6, 7)
NOWHERE = (-1, "step", "raise")
RAISED = ("raise", "Rank {rank} (cpu:{rank}) of node kitchen: A step of 3 rows failed (out of luck).")
LATE = ("freeze", "Rank {rank} (cpu:{rank}) of the stage did not take part in a step within 2 s.")
EITHER_RANK = pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelCard]:
    path = write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", TinyModel(layers=2))
    card = index_model(path, "tiny.gguf", lambda _done, _total: None)
    path.with_suffix(".card").write_bytes(card.to_bytes())
    return path, card


@pytest.fixture
async def node(model: tuple[Path, ModelCard]) -> AsyncIterator[RankNode]:
    """A node that leaves neither processes, descriptors nor shared memory behind."""
    async with grpc.aio.insecure_channel("127.0.0.1:9"):  # has gRPC keep what it opens when there is a first channel
        before, shared_before = descriptors(), set(os.listdir("/dev/shm"))
        async with asyncio.timeout(DEADLINE_S):
            node = RankNode(*model)
            yield node
            await node.keeper.close()
        assert ranks() == []
        await asyncio.sleep(0)  # the transports of ended pipes close in the next turn
        assert descriptors() <= before
    assert not {name for name in set(os.listdir("/dev/shm")) - shared_before if "layerline" in name or "torch" in name}


def ranks() -> list[psutil.Process]:
    """The workers that live, rank 0 first."""
    living = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return sorted(living, key=lambda child: child.pid)


def descriptors() -> set[str]:
    """What this process has open that daemons and workers speak through; what gRPC has is its own business."""
    targets = {os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}
    lines = {f"unix:{connection.fd}" for connection in psutil.Process().net_connections("unix")}
    return {target for target in targets if target.startswith(("pipe:", "/memfd:", "anon_inode:[pidfd]"))} | lines


def listening(process: psutil.Process) -> list[int]:
    """The ports that a process listens on, by the inodes of its descriptors."""
    return [
        connection.laddr.port
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=SLOW)])
async def test_ranks_draw_what_one_does_and_only_rank_0_listens(node: RankNode, count: int) -> None:
    stage = await node.load(count, proportions=range(1, count + 1))
    alone = node.drawn_alone(*PROMPT)
    assert await node.greedy(stage, *PROMPT) == alone
    async with node.ring(stage) as ring:
        with pytest.raises(ProtocolError, match="names page"):
            await ring.step(0, *PROMPT, first_page=8)
    assert await node.greedy(stage, *PROMPT) == alone  # a frame that is refused leaves the ranks in step
    ports = [listening(process) for process in ranks()]
    assert ports == [[stage.started.port], *[[]] * (count - 1)]


@EITHER_RANK
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("kill", "Rank {rank} (cpu:{rank}) of node kitchen was killed (SIGKILL)"),
        pytest.param(*RAISED, marks=SLOW),
        pytest.param(
            "freeze", "Rank {rank} (cpu:{rank}) of the stage did not take part in a step within 2 s.", marks=SLOW
        ),
    ],
    ids=["kill", "raise", "freeze"],
)
async def test_a_rank_is_lost_in_mid_step(node: RankNode, rank: int, fault: str, told: str) -> None:
    node.has_fault(rank, "step", fault, deadline_s=SILENCE_S)
    async with node.ring(await node.load(2)) as ring:
        with pytest.raises(LayerlineError):
            await ring.step(0, *PROMPT)
        error = await node.lost
    assert isinstance(error, StageFailedError)
    assert told.format(rank=rank) in str(error)
    assert error.node == "kitchen"
    assert ranks() == []
    assert node.keeper.loaded == ()


@EITHER_RANK
async def test_a_rank_that_freezes_in_mid_step_is_noticed_by_its_daemon_first(node: RankNode, rank: int) -> None:
    node.patience = BRIEF
    node.has_fault(rank, "step", "freeze")
    async with node.ring(await node.load(2)) as ring:
        with pytest.raises(LayerlineError):
            await ring.step(0, *PROMPT)
        assert f"Rank {rank} (cpu:{rank}) of node kitchen {STOPPED}" in str(await node.lost)
    assert ranks() == []


@pytest.mark.slow
async def test_a_stage_on_one_device_that_freezes_in_mid_step_is_noticed(node: RankNode) -> None:
    node.patience = BRIEF
    node.has_fault(0, "step", "freeze")
    async with node.ring(await node.load(1)) as ring:
        with pytest.raises(LayerlineError):
            await ring.step(0, *PROMPT)
        assert f"The worker of node kitchen {STOPPED}" in str(await node.lost)


@pytest.mark.slow
async def test_a_short_pause_of_a_worker_is_waited_for(node: RankNode) -> None:
    stage = await node.load(1)
    async with node.ring(stage) as ring:
        first = await ring.step(0, *PROMPT)
        (process,) = ranks()
        process.suspend()
        asyncio.get_running_loop().call_later(PAUSE_S, process.resume)
        assert [first, await ring.step(3, first)] == node.drawn_alone(*PROMPT, count=2)
    assert not node.lost.done()


@pytest.mark.slow
async def test_a_killed_rank_of_three(node: RankNode) -> None:
    node.has_fault(2, "step", "kill")
    async with node.ring(await node.load(3)) as ring:
        with pytest.raises(LayerlineError):
            await ring.step(0, *PROMPT)
        assert "Rank 2 (cpu:2) of node kitchen was killed" in str(await node.lost)
    assert ranks() == []


@pytest.mark.slow
async def test_a_rank_that_freezes_while_idle_is_noticed_at_the_next_step(node: RankNode) -> None:
    node.has_fault(*NOWHERE, deadline_s=SILENCE_S)
    stage = await node.load(2)
    async with node.ring(stage) as ring:
        await ring.step(0, *PROMPT)
        ranks()[1].suspend()
        with pytest.raises(LayerlineError):
            await ring.step(3, 8)
        assert "Rank 1 (cpu:1) of the stage did not take part in a step within 2 s" in str(await node.lost)
    assert ranks() == []


@EITHER_RANK
@pytest.mark.parametrize(
    ("number", "told"),
    [pytest.param(signal.SIGKILL, "was killed (SIGKILL)", marks=SLOW), (signal.SIGSTOP, STOPPED)],
)
async def test_a_rank_is_lost_while_idle(node: RankNode, rank: int, number: signal.Signals, told: str) -> None:
    node.patience = BRIEF
    node.has_fault(*NOWHERE)
    await node.load(2)
    ranks()[rank].send_signal(number)
    assert f"Rank {rank} (cpu:{rank}) of node kitchen {told}" in str(await node.lost)
    assert ranks() == []


@EITHER_RANK
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        pytest.param("kill", "was killed (SIGKILL)", id="kill"),
        pytest.param("raise", "(out of luck)", id="raise", marks=SLOW),
        pytest.param("freeze", STOPPED, id="freeze", marks=SLOW),
    ],
)
async def test_a_rank_that_is_lost_while_loading_is_named_and_the_node_loads_again(
    node: RankNode, rank: int, fault: str, told: str
) -> None:
    node.patience = BRIEF
    node.has_fault(rank, "load", fault)
    with pytest.raises(StageFailedError) as raised:
        await node.load(2)
    assert f"Rank {rank} (cpu:{rank}) of node kitchen" in str(raised.value)
    assert told in str(raised.value)
    assert ranks() == []
    if fault == "raise":
        node.has_fault(*NOWHERE)
        assert await node.greedy(await node.load(2), *PROMPT) == node.drawn_alone(*PROMPT)


@pytest.mark.parametrize("limit_kib", [pytest.param(300_000, marks=SLOW), 640 << 10])
async def test_an_address_space_that_is_too_small_is_told_at_once(node: RankNode, limit_kib: int) -> None:
    command = node.command
    node.command = ("/bin/bash", "-c", f'ulimit -v {limit_kib}; exec "$@"', "-", *command)
    with pytest.raises(StageFailedError, match=r"ulimit -v") as raised:
        await node.load(1)
    assert raised.value.node == "kitchen"
    node.command = command
    assert await node.greedy(await node.load(1), *PROMPT) == node.drawn_alone(*PROMPT)
