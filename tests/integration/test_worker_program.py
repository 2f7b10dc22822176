"""The worker as the process that a daemon starts: `python -m node.worker` over its standard streams."""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from layerline.errors import LayerlineError, ModelCorruptError, NodeLostError, ProtocolError
from layerline.frames import Frame, Hello, PageRun, Sampling, Span, TensorBytes
from layerline.hold import Place
from layerline.hosting.child import python_module, spawn
from layerline.models.card import ModelCard
from layerline.models.index import index_model
from layerline.peer import Peer
from layerline.plan import StageSpec
from layerline.rpc.links import FrameSender, ResultReceiver
from layerline.rpc.transport import Transport
from layerline.step_result import StepResult
from layerline.version import WIRE_VERSION
from node import pipe
from node.daemon.workers.seats import rank_seats
from node.load_stage import load_stage
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.peers import peer_at
from tests.fakes.tensor_entries import stored_of

pytestmark = pytest.mark.system

DEADLINE_S = 60.0
PLAN_KEY = b"k" * 16


class Worker:
    """A worker process, spoken with in messages."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._said = 0

    async def say(self, message: pipe.ToWorker) -> None:
        self._said += 1
        await self.say_bytes(pipe.pack(message, self._said))

    async def say_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def hear(self) -> pipe.FromWorker:
        """The next message that is no progress and no sign of life: the answer to what was said last."""
        assert self.process.stdout is not None
        while True:
            length = pipe.length_of(await self.process.stdout.readexactly(pipe.LENGTH_BYTES))
            command, message = pipe.unpack(await self.process.stdout.readexactly(length))
            assert isinstance(message, pipe.FromWorker)
            assert command == (pipe.NO_COMMAND if isinstance(message, pipe.Alive) else self._said)
            if not isinstance(message, pipe.Progress | pipe.Alive):
                return message

    async def end(self) -> tuple[int, bytes, str]:
        """Its exit code, what was left on its output beside signs of life, and its log, once its input has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        output, log = await self.process.communicate()
        code = self.process.returncode
        assert code is not None
        return code, output.replace(pipe.pack(pipe.Alive()), b""), log.decode()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelCard]:
    path = write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", TinyModel(layers=2))
    card = index_model(path, "tiny.gguf", lambda _done, _total: None)
    path.with_suffix(".card").write_bytes(card.to_bytes())
    return path, card


def start(path: Path, card: ModelCard) -> pipe.Start:
    spec = StageSpec(
        model="tiny.gguf",
        digest=card.digest,
        first_layer=0,
        last_layer=card.spec.layers - 1,
        dtype="float32",
        devices=("cpu",),
        pages=8,
        page_tokens=4,
        max_rows=16,
    )
    card_path = str(path.with_suffix(".card"))
    return pipe.Start(spec=spec, card_path=card_path, model_path=str(path), host="127.0.0.1", threads=1, node="kitchen")


def place(epoch: int, following: Peer | None = None) -> Place:
    count = 2 if following else 1
    return Place(epoch=epoch, plan_key=PLAN_KEY, stage_index=0, stage_count=count, next=following)


def hello(epoch: int, card: ModelCard) -> Hello:
    return Hello(
        wire_version=WIRE_VERSION,
        epoch=epoch,
        plan_key=PLAN_KEY,
        model_digest=card.digest,
        stage_index=0,
        sender="test",
    )


def frame(epoch: int, step: int, *tokens: int) -> Frame:
    span = Span(
        sequence=1, start=0, count=len(tokens), pages=(PageRun(first=0, count=2),), draws=1, sampling=Sampling()
    )
    data = struct.pack(f"<{len(tokens)}i", *tokens)
    tensor = TensorBytes(dtype="int32", shape=(len(tokens),), data=data)
    return Frame(epoch=epoch, step=step, spans=(span,), tensor=tensor)


@asynccontextmanager
async def worker(descriptors: Sequence[int] = ()) -> AsyncIterator[Worker]:
    async with asyncio.timeout(DEADLINE_S):
        process = await spawn(python_module("node.worker"), None, descriptors)
        try:
            yield Worker(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def token_of(address: str, epoch: int, card: ModelCard, *tokens: int) -> int:
    """The token that a worker draws after these."""
    results = await ResultReceiver.dial(Transport(), peer_at(address, name="kitchen"), hello(epoch, card))
    frames = await FrameSender.dial(
        Transport(), peer_at(address, name="kitchen"), hello(epoch, card), on_broken=lambda _: None
    )
    try:
        await frames.send(frame(epoch, 1, *tokens))
        return (await results.receive()).sampled[0].token_id
    finally:
        await frames.close()
        await results.close()


async def test_the_life_of_a_worker(model: tuple[Path, ModelCard]) -> None:
    path, card = model
    alone = load_stage(card, path, start(path, card).spec, lambda _done, _total: None).run(frame(1, 1, 5, 6, 7))
    assert isinstance(alone, StepResult)
    async with worker() as child:
        await child.say(start(path, card))
        started = await child.hear()
        assert isinstance(started, pipe.Started)
        assert started.weights_bytes > 0
        assert started.kv_bytes > 0
        address = f"127.0.0.1:{started.port}"

        for epoch in (1, 2):  # the second place is another coordinator's, that adopts the stage
            await child.say(place(epoch))
            assert await child.hear() == pipe.Placed(next_address="")
            assert await token_of(address, epoch, card, 5, 6, 7) == alone.sampled[0].token_id

        await child.say(start(path, card))
        assert await child.hear() == pipe.Refused(code="protocol", message="A worker is started once.", remedy="")

        await child.say(place(3, Peer(name="attic", addresses=("127.0.0.1:9",))))
        refused = await child.hear()
        assert isinstance(refused, pipe.Refused)
        assert refused.code == "node_unreachable"
        assert "attic" in refused.message

        await child.say(place(4))
        await child.hear()
        results = await ResultReceiver.dial(Transport(), peer_at(address, name="kitchen"), hello(4, card))
        await child.say(pipe.Vacate())
        with pytest.raises(NodeLostError):
            await results.receive()
        await results.close()
        with pytest.raises(ProtocolError, match="no place"):
            await token_of(address, 4, card, 5)

        await child.say(place(5))
        assert isinstance(await child.hear(), pipe.Placed)
        code, output, log = await child.end()
    assert (code, output) == (0, b"")
    assert "Traceback" not in log


async def refusal_of(start: pipe.Start) -> LayerlineError:
    """What a worker says that cannot start; it ends by itself."""
    async with worker() as child:
        await child.say(start)
        refused = await child.hear()
        await child.process.wait()
        code, output, log = await child.end()
    assert isinstance(refused, pipe.Refused)
    assert (code, output) == (1, b"")
    assert "Traceback" not in log
    return refused.error("kitchen")


async def test_a_flipped_byte_is_found_and_its_tensor_named(model: tuple[Path, ModelCard], tmp_path: Path) -> None:
    path, card = model
    entry = card.tensor("layers.1.up")
    assert entry is not None
    data = bytearray(path.read_bytes())
    data[stored_of(entry).offset + entry.nbytes // 2] ^= 0x10
    (tmp_path / "tiny.gguf").write_bytes(data)
    (tmp_path / "tiny.card").write_bytes(card.to_bytes())
    missing = start(tmp_path / "gone.gguf", card)
    path.with_name("gone.card").write_bytes(card.to_bytes())
    (tmp_path / "gone.card").write_bytes(card.to_bytes())
    corrupt, gone = await asyncio.gather(refusal_of(start(tmp_path / "tiny.gguf", card)), refusal_of(missing))
    assert isinstance(corrupt, ModelCorruptError)
    assert entry.stored_names in str(corrupt)
    assert isinstance(gone, LayerlineError)
    assert "gone.gguf" in str(gone)


@pytest.mark.slow
async def test_a_worker_that_is_not_started_properly_ends() -> None:
    async def ended(data: bytes) -> tuple[int, bytes, str]:
        async with worker() as child:
            await child.say_bytes(data)
            return await child.end()

    vacated, junk, nothing = await asyncio.gather(ended(pipe.pack(pipe.Vacate(), 1)), ended(b"\xff" * 64), ended(b""))
    assert (vacated[:2], junk[:2], nothing[:2]) == ((1, b""), (1, b""), (0, b""))
    assert "Vacate came before Start" in vacated[2]
    assert "pipe message" in junk[2]
    assert "Traceback" not in vacated[2] + junk[2] + nothing[2]


async def test_junk_on_the_pipe_ends_a_worker_that_serves(model: tuple[Path, ModelCard]) -> None:
    path, card = model
    async with worker() as child:
        await child.say(start(path, card))
        await child.hear()
        await child.say_bytes(pipe.pack(pipe.Placed(next_address=""), 2))
        code, output, log = await child.end()
    assert (code, output) == (1, b"")
    assert "Placed came from the daemon" in log


@asynccontextmanager
async def following(path: Path, card: ModelCard) -> AsyncIterator[Worker]:
    """Rank 1 of two, started; rank 0 is no more than its end of the line, which is closed at the end of the block."""
    split = dataclasses.replace(start(path, card).spec, devices=("cpu:0", "cpu:1"))
    told = dataclasses.replace(start(path, card), spec=split)
    with rank_seats({"cpu:0": 1, "cpu:1": 1}) as (_, seat):
        async with worker(seat.descriptors) as child:
            await child.say(seat.start_of(told))
            started = await child.hear()
            assert isinstance(started, pipe.Started)
            assert started.port == 0
            yield child


async def test_a_rank_that_follows_takes_no_commands(model: tuple[Path, ModelCard]) -> None:
    async with following(*model) as child:
        await child.say(place(1))
        code, output, log = await child.end()
    assert (code, output) == (1, b"")
    assert "Place came to a rank that follows" in log


@pytest.mark.slow
async def test_a_rank_that_follows_ends_with_its_daemon(model: tuple[Path, ModelCard]) -> None:
    async with following(*model) as child:
        code, output, log = await child.end()
    assert (code, output) == (0, b"")
    assert "Traceback" not in log
