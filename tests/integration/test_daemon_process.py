"""A real daemon as a process: what it says, whom it refuses, and that it ends with all that it started."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from coordinator.node_client import NodeClient
from coordinator.node_hold import hold
from layerline.errors import LayerlineError, ModelNotFoundError, NodeDrainingError
from layerline.hold import HoldHello
from layerline.rpc.transport import Transport
from node.daemon.devices.readings import Speed
from node.daemon.devices.speeds import speed_file, speed_key
from node.daemon.devices.system import system_devices
from tests.fakes.daemon_parts import stage_spec
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.peers import peer_at

pytestmark = pytest.mark.system

PROGRAM = Path(__file__).parent.parent / "fakes" / "daemon_program.py"
DEADLINE_S = 30
END_DEADLINE_S = 5.0
SPEED = Speed(matrix_flops_per_s=1e12, memory_bytes_per_s=1e10)


class Daemon:
    """A daemon process and what it has said."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.said = ""

    async def says(self, pattern: str) -> re.Match[str]:
        """Reads until it has said `pattern`."""
        assert self.process.stderr is not None
        while not (match := re.search(pattern, self.said)):
            line = await self.process.stderr.readline()
            assert line, f"it ended without saying {pattern!r}:\n{self.said}"
            self.said += line.decode()
        return match

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    async def ended(self) -> int:
        assert self.process.stderr is not None
        self.said += (await self.process.stderr.read()).decode()
        return await self.process.wait()


def lives(process: psutil.Process) -> bool:
    """Whether it runs; an orphan that has ended may stay a zombie until the system's first process looks."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for_end(process: psutil.Process) -> None:
    """Blocks until it has ended, since nobody tells of the end of another's child."""
    end = time.monotonic() + DEADLINE_S
    while lives(process) and time.monotonic() < end:
        time.sleep(0.01)
    assert not lives(process)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home where the CPU has been measured already, as measuring needs torch."""
    with system_devices({}) as system:
        speed_file(tmp_path).write({speed_key(system.read("cpu"), 1): SPEED})
    return tmp_path


@asynccontextmanager
async def daemon(home: Path, **options: object) -> AsyncIterator[Daemon]:
    given = {"name": "kitchen", "host": "127.0.0.1", "port": 0, "device": "cpu:1", "mdns": "no", **options}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        *(f"{option}={value}" for option, value in given.items()),
        stderr=PIPE,
        env={**os.environ, "LAYERLINE_STATE": str(home), "LAYERLINE_CACHE": str(home)},
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield Daemon(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def address_of(node: Daemon) -> str:
    return (await node.says(r"Listening on (\S+)\."))[1]


async def test_it_says_who_it_is_and_describes_itself(home: Path) -> None:
    (home / "models").mkdir()
    write_gguf(home / "models" / "tiny.gguf", TinyModel())
    async with daemon(home, memory="64MiB") as node:
        await node.says("To prompt, .* --model tiny.gguf --node 127")
        await node.says("Device cpu computes 1 TFLOP/s and reads 10 GB/s")
        facts = await NodeClient(Transport()).describe(await address_of(node))
    assert (facts.name, facts.state, facts.addresses) == ("kitchen", "ready", (await address_of(node),))
    assert (facts.devices[0].threads, facts.devices[0].budget_bytes) == (1, 64 << 20)
    assert facts.devices[0].matrix_flops_per_s == SPEED.matrix_flops_per_s
    assert [model.name for model in facts.models] == ["tiny.gguf"]
    assert facts.node_id in node.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_tells_the_coordinator_and_leaves_no_process(home: Path, number: signal.Signals) -> None:
    (home / "models").mkdir()
    write_gguf(home / "models" / "tiny.gguf", TinyModel())
    async with daemon(home) as node:
        address = await address_of(node)
        news: asyncio.Future[LayerlineError] = asyncio.get_running_loop().create_future()
        async with hold(
            Transport(), peer_at(address, name="kitchen"), hello=HoldHello.of("desk"), on_lost=news.set_result
        ) as session:
            spec = stage_spec("tiny", digest=await _digest(address))
            await session.load(1, spec, lambda _done, _total: None)
            children = node.children()
            assert len(children) == 1
            node.process.send_signal(number)
            assert isinstance(await news, NodeDrainingError)
        async with asyncio.timeout(END_DEADLINE_S):
            assert await node.ended() == 0
        assert not [child for child in children if lives(child)]


async def _digest(address: str) -> str:
    return (
        await NodeClient(Transport()).open_model(peer_at(address, name="kitchen"), "tiny", lambda _done, _total: None)
    ).digest


async def test_a_coordinator_that_does_not_leave_is_not_waited_for_long(home: Path) -> None:
    async with daemon(home) as node:
        address = await address_of(node)
        async with hold(
            Transport(), peer_at(address, name="kitchen"), hello=HoldHello.of("desk"), on_lost=lambda _: None
        ):
            node.process.terminate()
            async with asyncio.timeout(END_DEADLINE_S):
                assert await node.ended() == 0


async def test_a_second_signal_ends_it_at_once_and_its_worker_with_it(home: Path) -> None:
    (home / "models").mkdir()
    write_gguf(home / "models" / "tiny.gguf", TinyModel())
    async with daemon(home) as node:
        address = await address_of(node)
        async with hold(
            Transport(), peer_at(address, name="kitchen"), hello=HoldHello.of("desk"), on_lost=lambda _: None
        ) as session:
            await session.load(1, stage_spec("tiny", digest=await _digest(address)), lambda _done, _total: None)
            (worker,) = node.children()
            node.process.send_signal(signal.SIGTERM)
            await node.says("SIGTERM: ending")
            node.process.send_signal(signal.SIGTERM)
            assert await node.ended() == -signal.SIGTERM
            await asyncio.to_thread(wait_for_end, worker)


async def test_a_stage_that_nobody_wants_is_ended(home: Path) -> None:
    (home / "models").mkdir()
    write_gguf(home / "models" / "tiny.gguf", TinyModel())
    async with daemon(home, keep_alive="0s") as node:
        address = await address_of(node)
        async with hold(
            Transport(), peer_at(address, name="kitchen"), hello=HoldHello.of("desk"), on_lost=lambda _: None
        ) as session:
            await session.load(1, stage_spec("tiny", digest=await _digest(address)), lambda _done, _total: None)
        await node.says("Unloaded layers 0 to 1 of tiny")
        assert node.children() == []


async def test_a_second_daemon_of_the_same_name_is_refused_with_both_addresses(home: Path) -> None:
    async with daemon(home) as first:
        address = await address_of(first)
        async with daemon(home) as second:
            assert await second.ended() == 6
            assert re.search(rf"node_duplicate: .* at {address}; this one, at 127\.0\.0\.1:\d+", second.said)
        async with daemon(home, port=address.rpartition(":")[2]) as same:
            assert await same.ended() == 6
            assert "node_duplicate" in same.said
        async with daemon(home, name="desk", port=address.rpartition(":")[2]) as other:
            assert await other.ended() == 6
            assert "port_in_use" in other.said


async def test_the_node_is_the_same_after_a_restart(home: Path) -> None:
    ids = []
    for _ in range(2):
        async with daemon(home) as node:
            ids.append((await node.says(r"\(id (\w+)\)"))[1])
            await address_of(node)
            node.process.terminate()
            assert await node.ended() == 0
    assert ids[0] == ids[1]


async def test_an_unknown_model_does_no_harm(home: Path) -> None:
    async with daemon(home) as node:
        address = await address_of(node)
        async with hold(
            Transport(), peer_at(address, name="kitchen"), hello=HoldHello.of("desk"), on_lost=lambda _: None
        ) as session:
            with pytest.raises(ModelNotFoundError, match="does not exist: make it"):
                await session.load(1, stage_spec(), lambda _done, _total: None)
        assert (await NodeClient(Transport()).describe(address)).state == "ready"
