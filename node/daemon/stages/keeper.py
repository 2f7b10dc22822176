"""The one stage that this node has in memory: loading, placing, keeping and ending it.

Keeps the worker while a coordinator holds the node and for a while after, so that the next one with the same
plan adopts it. Knows nothing of streams; workers, models, epochs and timers are given to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from layerline.errors import (
    LayerlineError,
    ModelMismatchError,
    ProtocolError,
)
from layerline.facts import DeviceFacts, LoadedStage
from layerline.frames import MAX_EPOCH_JUMP
from layerline.holding import Place
from layerline.plan import StageSpec
from node.daemon.stages.memory import check_memory_fits, device_bytes
from node.daemon.stages.model_library import OnProgress, OpenedModel
from node.pipe import Placed, Start, Started

log = logging.getLogger(__name__)
OnLost = Callable[[LayerlineError], None]


class Worker(Protocol):
    """A stage's workers as the keeper uses them: `node.daemon.workers.group.WorkerGroup`, or a fake."""

    lost: LayerlineError | None

    @property
    def resident_bytes(self) -> Sequence[int]:
        """What each rank has in the machine's memory at this moment."""

    async def start(self, start: Start, on_progress: OnProgress) -> Started:
        """Loads a stage."""

    async def place(self, place: Place) -> Placed:
        """Takes a place in a plan."""

    async def vacate(self) -> None:
        """Gives the place up."""

    async def stop(self) -> None:
        """Ends the worker."""


class Models(Protocol):
    """Where cards come from: `node.daemon.stages.model_library.ModelLibrary`, or a fake."""

    async def open(self, name: str, on_progress: OnProgress) -> OpenedModel:
        """The model of that name."""


class Epochs(Protocol):
    """What remembers epochs over restarts: `node.daemon.identity.Identity`, or a fake."""

    def last_epoch(self) -> int:
        """The highest so far."""

    def remember_epoch(self, epoch: int) -> None:
        """Keeps a higher one."""


class Timer(Protocol):
    """What can be called off."""

    def cancel(self) -> None:
        """Calls it off."""


SpawnWorker = Callable[[Sequence[str], OnLost], Awaitable[Worker]]  # for the devices of one stage
CallLater = Callable[[float, Callable[[], None]], Timer]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeeperSettings:
    """What a keeper is told once: the node's name, the host its workers listen on, and its own patience."""

    node: str
    host: str
    keep_alive_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptStage:
    """The stage in memory, its worker and what that has said of itself."""

    spec: StageSpec
    started: Started
    worker: Worker
    device_bytes: Mapping[str, int]  # held on each of its devices


class StageKeeper:
    """Has at most one stage. `devices` tells what models may take where, given what the stage takes on each."""

    def __init__(
        self,
        settings: KeeperSettings,
        *,
        models: Models,
        epochs: Epochs,
        devices: Callable[[Mapping[str, int]], Sequence[DeviceFacts]],
        spawn_worker: SpawnWorker,
        call_later: CallLater,
    ) -> None:
        self._settings = settings
        self._models = models
        self._epochs = epochs
        self._devices = devices
        self._spawn_worker = spawn_worker
        self._call_later = call_later
        self._stage: KeptStage | None = None
        self._tell_holder: OnLost | None = None
        self._timer: Timer | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    @property
    def loaded(self) -> LoadedStage | None:
        """What is in memory."""
        if self._stage is None:
            return None
        started = self._stage.started
        return LoadedStage(spec=self._stage.spec, weights_bytes=started.weights_bytes, kv_bytes=started.kv_bytes)

    @property
    def own_bytes(self) -> Mapping[str, int]:
        """What the stage in memory takes on each device; KV pages on a CPU take nothing until they are used."""
        if self._stage is None:
            return {}
        resident_bytes = self._stage.worker.resident_bytes
        return {
            device: min(held, resident) if device.startswith("cpu") else held
            for (device, held), resident in zip(self._stage.device_bytes.items(), resident_bytes, strict=True)
        }

    @property
    def last_epoch(self) -> int:
        """The highest epoch in which this node has taken a place."""
        return self._epochs.last_epoch()

    def taken(self, on_lost: OnLost) -> None:
        """A coordinator holds the node from now on; `on_lost` is told if the loaded stage's worker is lost."""
        self._tell_holder = on_lost
        self._call_off_timer()

    async def released(self) -> None:
        """Nobody holds the node any more: the place is given up, the stage kept for the next one."""
        self._tell_holder = None
        async with self._lock:
            if self._stage:
                await self._stage.worker.vacate()
                self._call_off_timer()
                self._timer = self._call_later(self._settings.keep_alive_s, self._expire)

    async def load(self, spec: StageSpec, on_progress: OnProgress) -> tuple[KeptStage, bool]:
        """The stage of `spec`, and whether it was in memory already; any other one is ended first.

        Nothing is ended for a stage that cannot be loaded anyway: ModelMismatchError, PlanInvalidError or
        PlanDoesNotFitError come before. Cancelling it leaves nothing loaded.
        """
        async with self._lock:
            if self._stage and self._stage.spec == spec:
                return self._stage, True
            model = await self._models.open(spec.model, lambda _done, _total: None)
            self._check(spec, model)
            await self._end()
            self._stage = await self._start(spec, model, on_progress)
            return self._stage, False

    async def bind(self, place: Place) -> str:
        """Places the stage; where it reached the next one. ProtocolError for an epoch that has passed."""
        async with self._lock:
            if self._stage is None:
                raise ProtocolError(f"Node {self._settings.node} has nothing loaded to bind.", node=self._settings.node)
            last_epoch = self._epochs.last_epoch()
            if place.epoch <= last_epoch:
                raise ProtocolError(
                    f"Node {self._settings.node} was to take a place in epoch {place.epoch} after epoch {last_epoch}.",
                    node=self._settings.node,
                    remedy="Make the plan anew.",
                )
            if place.epoch > last_epoch + MAX_EPOCH_JUMP:
                raise ProtocolError(
                    f"Node {self._settings.node} was to take a place in epoch {place.epoch} after epoch {last_epoch},"
                    " and nobody makes so many plans.",
                    node=self._settings.node,
                    remedy="If another node has such an epoch, remove the file `epoch` in its state folder.",
                )
            self._epochs.remember_epoch(place.epoch)
            return (await self._stage.worker.place(place)).next_address

    async def unload(self) -> None:
        """Ends the stage, if there is one."""
        async with self._lock:
            await self._end()

    async def close(self) -> None:
        """Ends the stage and the timer, for good."""
        self._call_off_timer()
        if self._expiring:
            await asyncio.wait({self._expiring})
        await self.unload()

    def _check(self, spec: StageSpec, model: OpenedModel) -> None:
        node = self._settings.node
        if spec.digest != model.digest:
            raise ModelMismatchError(
                f"Model {spec.model} on node {node} has digest {model.digest}, the plan wants {spec.digest}.",
                node=node,
                remedy="Copy the same model files to every machine.",
            )
        check_memory_fits(spec, model, self._devices(self.own_bytes), node)

    async def _start(self, spec: StageSpec, model: OpenedModel, on_progress: OnProgress) -> KeptStage:
        worker: Worker | None = None  # while a group is spawned, one of its ranks may be lost already
        worker = await self._spawn_worker(spec.devices, lambda error: self._lost(worker, error))
        start = Start(
            spec=spec,
            card_path=str(model.card_path),
            model_path=str(model.path),
            host=self._settings.host,
            node=self._settings.node,
        )
        try:
            started = await worker.start(start, on_progress)
            if worker.lost:
                raise worker.lost
        except BaseException:
            await worker.stop()
            raise
        log.info("Loaded layers %d to %d of %s.", spec.first_layer, spec.last_layer, spec.model)
        held_bytes = {device: taken.held for device, taken in device_bytes(spec, model).items()}
        return KeptStage(spec=spec, started=started, worker=worker, device_bytes=held_bytes)

    async def _end(self) -> None:
        stage, self._stage = self._stage, None
        if stage:
            await stage.worker.stop()
            log.info("Unloaded layers %d to %d of %s.", stage.spec.first_layer, stage.spec.last_layer, stage.spec.model)

    def _lost(self, worker: Worker | None, error: LayerlineError) -> None:
        if self._stage is None or self._stage.worker is not worker:
            return
        self._stage = None
        if self._tell_holder:
            self._tell_holder(error)

    def _call_off_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer:
            timer.cancel()

    def _expire(self) -> None:
        self._timer = None
        self._expiring = asyncio.create_task(self._unload_unless_held())

    async def _unload_unless_held(self) -> None:
        async with self._lock:
            if self._tell_holder is None:
                await self._end()
