"""A node's keeper with real workers of several ranks, and a coordinator's ends of the ring through its stage."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from layerline.errors import LayerlineError
from layerline.frames import Frame, Hello, PageRun, Sampling, Span, TensorBytes
from layerline.hold import Place
from layerline.hosting.child import python_module
from layerline.models.card import ModelCard
from layerline.models.indexer import OnProgress
from layerline.plan import StageSpec
from layerline.rpc.links import FrameSender, ResultReceiver
from layerline.rpc.transport import Transport
from layerline.version import WIRE_VERSION
from node.daemon.stages.kept import KeptStage, OnLost
from node.daemon.stages.model_library import OpenedModel
from node.daemon.workers.group import WorkerGroup
from node.daemon.workers.patience import PATIENCE
from node.pipe import ChosenExperts
from tests.fakes.daemon_parts import make_keeper, place_of
from tests.fakes.peers import peer_at
from tests.fakes.tiny_models import StoredModel

FAULTY = Path(__file__).with_name("faulty_rank.py")
DEADLINE_S = 60.0
DEVICES = ("cpu", "cpu:0", "cpu:1", "cpu:2")


class RingEnds:
    """A coordinator's links to a stage that is the only one."""

    def __init__(self, epoch: int, frames: FrameSender, results: ResultReceiver) -> None:
        self._epoch = epoch
        self._frames = frames
        self._results = results
        self._step = 0

    async def step(self, start: int, *token_ids: int, first_page: int = 0) -> int:
        """The token that is drawn after these, of which the first has position `start`."""
        self._step += 1
        pages = (PageRun(first=first_page, count=4),)
        span = Span(sequence=1, start=start, count=len(token_ids), pages=pages, draws=1, sampling=Sampling())
        data = np.array(token_ids, np.int32).tobytes()
        tensor = TensorBytes(dtype="int32", shape=(len(token_ids),), data=data)
        await self._frames.send(Frame(epoch=self._epoch, step=self._step, spans=(span,), tensor=tensor))
        return (await self._results.receive()).sampled[0].token_id

    async def greedy(self, *prompt: int, count: int = 3) -> list[int]:
        """The likeliest tokens after `prompt`."""
        drawn: list[int] = []
        rows, start = prompt, 0
        for _ in range(count):
            drawn.append(await self.step(start, *rows))
            start, rows = start + len(rows), (drawn[-1],)
        return drawn


@asynccontextmanager
async def ring_through(port: int, place: Place, digest: str) -> AsyncIterator[RingEnds]:
    """The ends of the ring through the only stage of a plan, which has this place and listens on `port`."""
    greeting = Hello(
        wire_version=WIRE_VERSION,
        epoch=place.epoch,
        plan_key=place.plan_key,
        model_digest=digest,
        stage_index=place.stage_index,
        sender="test",
    )
    address = f"127.0.0.1:{port}"
    results = await ResultReceiver.dial(Transport(), peer_at(address, name="kitchen"), greeting)
    frames = await FrameSender.dial(Transport(), peer_at(address, name="kitchen"), greeting, on_broken=lambda _: None)
    try:
        yield RingEnds(place.epoch, frames, results)
    finally:
        await frames.close()
        await results.close()


class RankNode:
    """A node that has one model. `command` is what its workers are started by, `lost` what was said of a lost one."""

    def __init__(self, path: Path, card: ModelCard) -> None:
        self.command = python_module("node.worker")
        self.patience = PATIENCE
        self.lost: asyncio.Future[LayerlineError] = asyncio.get_running_loop().create_future()
        self._path = path
        self._card = card
        self._epoch = 0
        self.keeper = make_keeper(self._spawn, models=self, devices=DEVICES)
        self._chosen: asyncio.Queue[ChosenExperts] = asyncio.Queue()
        self.keeper.taken(self._on_lost, lambda _stage, chosen: self._chosen.put_nowait(chosen))

    def has_fault(self, rank: int, point: str, fault: str, *, deadline_s: float = DEADLINE_S) -> None:
        """The workers of the next stage are those of `tests.fakes.faulty_rank`; what was lost is forgotten."""
        self.command = (sys.executable, str(FAULTY), str(rank), point, fault, str(deadline_s))
        self.lost = asyncio.get_running_loop().create_future()

    async def chosen(self, pairs: int) -> ChosenExperts:
        """What is told as soon as that many pairs of a row and an expert of the first layer are counted."""
        while True:
            told = await self._chosen.get()
            if sum(told.rows[0]) >= pairs:
                return told

    async def open(self, name: str, on_progress: OnProgress) -> OpenedModel:
        card_path = self._path.with_suffix(".card")
        return OpenedModel(
            name=name,
            digest=self._card.digest,
            spec=self._card.spec,
            tensors=self._card.tensors,
            path=self._path,
            card_path=card_path,
        )

    async def load(self, ranks: int, proportions: Sequence[int] = (), **changes: Any) -> KeptStage:
        """The whole model on that many ranks."""
        devices = tuple(f"cpu:{rank}" for rank in range(ranks)) if ranks > 1 else ("cpu",)
        stage, _ = await self.keeper.load(self.spec(devices, proportions, **changes), lambda _done, _total: None)
        return stage

    def spec(self, devices: Sequence[str], proportions: Sequence[int] = (), **changes: Any) -> StageSpec:
        fields: dict[str, Any] = {
            "model": "tiny.gguf",
            "digest": self._card.digest,
            "first_layer": 0,
            "last_layer": self._card.spec.layers - 1,
            "dtype": "float32",
            "devices": tuple(devices),
            "proportions": tuple(proportions),
            "pages": 8,
            "page_tokens": 4,
            "max_rows": 16,
        }
        return StageSpec(**{**fields, **changes})

    async def greedy(self, stage: KeptStage, *prompt: int, count: int = 3) -> list[int]:
        """The likeliest tokens after `prompt`, asked for over the ring as a coordinator does."""
        async with self.ring(stage) as ring:
            return await ring.greedy(*prompt, count=count)

    def drawn_alone(self, *prompt: int, count: int = 3) -> list[int]:
        """The same tokens from a stage in this process, which has the whole model."""
        stored = StoredModel(path=self._path, card=self._card)
        return stored.chain(1).greedy(prompt, count)

    @asynccontextmanager
    async def ring(self, stage: KeptStage) -> AsyncIterator[RingEnds]:
        """The stage in a place of its own, and the ends of the ring through it."""
        self._epoch += 1
        place = place_of(self._epoch)
        await self.keeper.bind(stage, place)
        async with ring_through(stage.started.port, place, self._card.digest) as ring:
            yield ring

    async def _spawn(self, devices: Sequence[str], on_lost: OnLost) -> WorkerGroup:
        threads = dict.fromkeys(devices, 1)
        return await WorkerGroup.spawn(
            self.command, os.environ, threads, node="kitchen", on_lost=on_lost, patience=self.patience
        )

    def _on_lost(self, _stage: KeptStage, error: LayerlineError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)
