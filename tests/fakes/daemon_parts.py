"""What a daemon is made of, in memory: a worker, models, epochs and timers that a test moves by hand."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from layerline.errors import LayerlineError
from layerline.facts import DeviceFacts
from layerline.hold import Bind, Place
from layerline.hosting.child import python_module
from layerline.models.expert_placement import ExpertPlacement
from layerline.models.indexer import OnProgress
from layerline.models.spec import ModelSpec
from layerline.peer import Peer
from layerline.plan import StageSpec
from node.daemon.stages.keeper import KeeperSettings, StageKeeper
from node.daemon.stages.kept import KeptStage, Models, OnChosenExperts, OnLost, SpawnWorker
from node.daemon.stages.model_library import OpenedModel
from node.daemon.workers.group import WorkerGroup
from node.pipe import Placed, Start, Started
from tests.fakes.cards import model_card
from tests.fakes.specs import decoder_spec

DIGEST = "d" * 64
WORKER_PROGRAM = Path(__file__).with_name("daemon_worker.py")


def worker_command(*mode: str) -> tuple[str, ...]:
    return (sys.executable, str(WORKER_PROGRAM), *mode)


def stage_spec(model: str = "tiny", *, last_layer: int = 1, digest: str = DIGEST, pages: int = 8) -> StageSpec:
    return StageSpec(
        model=model,
        digest=digest,
        first_layer=0,
        last_layer=last_layer,
        dtype="bfloat16",
        devices=("cpu",),
        pages=pages,
        page_tokens=16,
        max_rows=64,
    )


def bind_command(epoch: int, command: int = 1, following: Peer | None = None) -> Bind:
    return Bind(command=command, stage=1, place=place_of(epoch, following))


def place_of(epoch: int, following: Peer | None = None) -> Place:
    """The first place of a plan of one stage, or of two where one follows."""
    count = 2 if following else 1
    return Place(epoch=epoch, plan_key=b"k" * 16, stage_index=0, stage_count=count, next=following)


def model_spec(layers: int = 4) -> ModelSpec:
    return decoder_spec(layers=layers)


def cpu_facts(budget_bytes: int = 1 << 30, device: str = "cpu") -> DeviceFacts:
    return DeviceFacts(
        device=device,
        kind="cpu",
        name="a CPU",
        threads=1,
        total_bytes=1 << 31,
        free_bytes=1 << 30,
        budget_bytes=budget_bytes,
    )


class FakeModels:
    """Every model there is has the same card."""

    async def open(self, name: str, on_progress: OnProgress) -> OpenedModel:
        return OpenedModel(
            name=name,
            digest=DIGEST,
            spec=model_spec(),
            tensors=model_card(model_spec()).tensors,
            path=Path("/models") / name,
            card_path=Path("/cards/1.card"),
        )


@dataclass
class FakeEpochs:
    epoch: int = 0

    def last_epoch(self) -> int:
        return self.epoch

    def remember_epoch(self, epoch: int) -> None:
        self.epoch = epoch


@dataclass
class FakeTimers:
    """Timers that go off when the test says so."""

    waiting: dict[int, tuple[float, Callable[[], None]]] = field(default_factory=dict)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> FakeTimer:
        key = len(self.waiting)
        self.waiting[key] = (delay_s, call)
        return FakeTimer(self, key)

    def go_off(self) -> None:
        """All that wait go off."""
        waiting, self.waiting = self.waiting, {}
        for _, call in waiting.values():
            call()


@dataclass
class FakeTimer:
    timers: FakeTimers
    key: int

    def cancel(self) -> None:
        self.timers.waiting.pop(self.key, None)


class FakeWorker:
    """Does as told, and keeps what it was told. `hold_start` and `fail_start` make loading wait or fail."""

    def __init__(self, on_lost: OnLost, *, hold_start: bool = False, fail_start: BaseException | None = None) -> None:
        self.on_lost = on_lost
        self.lost: LayerlineError | None = None
        self.told: list[str] = []
        self.starts: list[Start] = []
        self.places: list[Place] = []
        self.resident_bytes: list[int] = []
        self.tell_experts: OnChosenExperts = lambda _chosen: None
        self.fail_moves: LayerlineError | None = None
        self._hold_start = hold_start
        self._fail_start = fail_start

    async def start(self, start: Start, on_progress: OnProgress) -> Started:
        self.told.append("start")
        self.starts.append(start)
        on_progress(1, 2)
        if self._hold_start:
            await asyncio.get_running_loop().create_future()
        if self._fail_start:
            raise self._fail_start
        return Started(port=4711, weights_bytes=1000, kv_bytes=500)

    async def place(self, place: Place) -> Placed:
        self.told.append("place")
        self.places.append(place)
        return Placed(next_address=place.next.addresses[0] if place.next else "")

    def watch_experts(self, tell: OnChosenExperts) -> None:
        self.tell_experts = tell

    async def move_experts(self, layer: int, placement: ExpertPlacement, on_taken: Callable[[], None]) -> None:
        self.told.append(f"move experts of layer {layer}")
        if self.fail_moves:
            raise self.fail_moves
        on_taken()

    async def vacate(self) -> None:
        self.told.append("vacate")

    async def stop(self) -> None:
        self.told.append("stop")

    def die(self, error: LayerlineError) -> None:
        self.lost = error
        self.on_lost(error)


class FakeWorkers:
    """Spawns fake workers, all alike, and keeps them."""

    def __init__(self, *, hold_start: bool = False, fail_start: BaseException | None = None) -> None:
        self.spawned: list[FakeWorker] = []
        self.hold_start = hold_start
        self.fail_start = fail_start

    async def spawn(self, devices: Sequence[str], on_lost: OnLost) -> FakeWorker:
        worker = FakeWorker(on_lost, hold_start=self.hold_start, fail_start=self.fail_start)
        worker.resident_bytes = [1 << 40] * len(devices)
        self.spawned.append(worker)
        return worker


def process_workers(mode: str = "good") -> SpawnWorker:
    """Spawns the worker program as real processes."""

    async def spawn(devices: Sequence[str], on_lost: OnLost) -> WorkerGroup:
        threads = dict.fromkeys(devices, 1)
        return await WorkerGroup.spawn(worker_command(mode), {}, threads, node="kitchen", on_lost=on_lost)

    return spawn


async def real_workers(devices: Sequence[str], on_lost: OnLost) -> WorkerGroup:
    """Spawns the workers that compute."""
    threads = dict.fromkeys(devices, 1)
    return await WorkerGroup.spawn(python_module("node.worker"), os.environ, threads, node="kitchen", on_lost=on_lost)


def make_keeper(
    spawn_worker: SpawnWorker,
    *,
    timers: FakeTimers | None = None,
    epochs: FakeEpochs | None = None,
    models: Models | None = None,
    devices: Sequence[str] = ("cpu",),
    budget_bytes: int = 1 << 30,
) -> StageKeeper:
    return StageKeeper(
        KeeperSettings(node="kitchen", host="127.0.0.1", keep_alive_s=300.0),
        models=models or FakeModels(),
        epochs=epochs or FakeEpochs(),
        devices=lambda _own_bytes: [cpu_facts(budget_bytes, device) for device in devices],
        spawn_worker=spawn_worker,
        call_later=(timers or FakeTimers()).call_later,
    )


def ignore(_done_bytes: int, _total_bytes: int) -> None:
    """For a load whose progress is no matter."""


def ignore_loss(_stage: KeptStage, _error: LayerlineError) -> None:
    """For a holder that takes no note of losses."""


async def held_and_left(keeper: StageKeeper) -> None:
    """A coordinator has held the node, loaded a stage and left."""
    keeper.taken(ignore_loss)
    await keeper.load(stage_spec(), ignore)
    await keeper.released()
