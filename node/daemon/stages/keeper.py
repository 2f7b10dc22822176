"""The stages that this node has in memory: loading, placing, keeping and ending each of them.

A stage is in use from when the holder of the node has it loaded until it is unloaded or the hold ends. After that it
is idle: kept for a while, so that the next holder with the same plan adopts it, and ended before that if a new stage
needs its memory. Knows nothing of streams; workers, models, epochs and timers are given to it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from layerline.errors import LayerlineError, ModelMismatchError, PlanDoesNotFitError, ProtocolError
from layerline.facts import MAX_STAGES, DeviceFacts, LoadedStage
from layerline.frames import MAX_EPOCH_JUMP
from layerline.hold import Place
from layerline.models.expert_placement import ExpertPlacement
from layerline.models.indexer import OnProgress
from layerline.models.model_parts import first_placements
from layerline.models.sizes import ModelSizes
from layerline.plan import StageSpec
from node.daemon.stages.kept import CallLater, Epochs, KeptStage, Models, SpawnWorker, Worker
from node.daemon.stages.memory import StageBytes, check_memory_fits, device_bytes, fits
from node.daemon.stages.model_library import OpenedModel
from node.pipe import ChosenExperts, Start

log = logging.getLogger(__name__)

OnStageLost = Callable[[KeptStage, LayerlineError], None]
OnStageExperts = Callable[[KeptStage, ChosenExperts], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeeperSettings:
    """What a keeper is told once: the node's name, the host its workers listen on, and its own patience."""

    node: str
    host: str
    keep_alive_s: float


class StageKeeper:
    """Has the stages. `devices` tells what models may take where, given what the stages take on each."""

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
        self._stages: list[KeptStage] = []  # those that have been idle longest first
        self._plan_key = b""  # of the last epoch
        self._tell_holder: OnStageLost | None = None
        self._tell_experts: OnStageExperts | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    @property
    def loaded(self) -> tuple[LoadedStage, ...]:
        """What is in memory."""
        return tuple(stage.loaded for stage in self._stages)

    @property
    def own_bytes(self) -> Mapping[str, int]:
        """What the stages in memory take on each device at this moment."""
        total: Counter[str] = Counter()
        for stage in self._stages:
            total.update(stage.own_bytes)
        return total

    @property
    def last_epoch(self) -> int:
        """The highest epoch in which this node has taken a place."""
        return self._epochs.last_epoch()

    def taken(self, on_lost: OnStageLost, on_experts: OnStageExperts | None = None) -> None:
        """A coordinator holds the node from now on; `on_lost` is told if the worker of a stage in use is lost.

        `on_experts` is told which experts the rows of a stage in use choose.
        """
        self._tell_holder, self._tell_experts = on_lost, on_experts
        for stage in self._stages:
            self._keep(stage)  # from now on, so that what the coordinator has just seen is there when it asks

    async def released(self) -> None:
        """Nobody holds the node any more: all places are given up, the stages kept for the next holder."""
        self._tell_holder = self._tell_experts = None
        async with self._lock:
            for stage in [stage for stage in self._stages if stage.in_use]:
                await stage.worker.vacate()
                self._keep(stage)

    async def load(
        self, spec: StageSpec, on_progress: OnProgress, *, instead_of: KeptStage | None = None
    ) -> tuple[KeptStage, bool]:
        """A stage of `spec`, in use from now on, and whether it was in memory already.

        An idle one is adopted. A new one ends `instead_of`, and idle ones where it does not fit beside them. Nothing is
        ended for a stage that cannot be loaded anyway: ModelMismatchError, PlanInvalidError or PlanDoesNotFitError
        come before. Cancelling it leaves no new stage.
        """
        async with self._lock:
            living = [stage for stage in self._stages if stage.spec == spec and not stage.worker.lost]
            if instead_of and instead_of in living:
                return instead_of, True
            for stage in living:
                if not stage.in_use:
                    await self._end_all([instead_of] if instead_of else [])
                    return self._used(stage), True
            model = await self._models.open(spec.model, lambda _done, _total: None)
            await self._end_all(self._in_the_way(spec, model, instead_of))
            stage = await self._start(spec, model, on_progress)
            self._stages.append(stage)
            return stage, False

    async def bind(self, stage: KeptStage, place: Place) -> str:
        """Places the stage; where it reached the next one. ProtocolError for an epoch that has passed or is far ahead.

        Several stages of one plan, known by its key, may be placed in the same epoch.
        """
        async with self._lock:
            if stage.worker.lost:
                raise stage.worker.lost
            last_epoch = self._epochs.last_epoch()
            same_plan = place.epoch == last_epoch and place.plan_key == self._plan_key
            if not same_plan:
                self._check_epoch(place.epoch, last_epoch)
                self._epochs.remember_epoch(place.epoch)
                self._plan_key = place.plan_key
            return (await stage.worker.place(place)).next_address

    def _check_epoch(self, epoch: int, last_epoch: int) -> None:
        told = f"Node {self._settings.node} was to take a place in epoch {epoch} after epoch {last_epoch}"
        if epoch <= last_epoch:
            raise ProtocolError(f"{told}.", node=self._settings.node, remedy="Make the plan anew.")
        if epoch > last_epoch + MAX_EPOCH_JUMP:
            raise ProtocolError(
                f"{told}, and nobody makes so many plans.",
                node=self._settings.node,
                remedy="If another node has such an epoch, remove the file `epoch` in its state folder.",
            )

    async def move_experts(self, stage: KeptStage, layer: int, placement: ExpertPlacement) -> None:
        """Places the experts of a layer so, between two steps of the stage.

        ProtocolError for what is no placement of them; raises why they stay where they are, or why the stage is lost.
        """
        async with self._lock:
            if stage.worker.lost:
                raise stage.worker.lost
            node, before = self._settings.node, stage.placements.get(layer)
            if before is None:
                message = f"Node {node} has no experts of layer {layer} that could be moved."
                raise ProtocolError(message, node=node, remedy="Make the plan anew.")
            try:
                placement.check(len(set().union(*before.ranks)), len(before.ranks))
                placement.check_coming(before, stage.spec.device_experts if stage.spec.expert_device else None)
            except ValueError as error:
                message = f"Experts of layer {layer} were to move on node {node}: {error}."
                raise ProtocolError(message, node=node) from None
            taken = functools.partial(stage.placements.__setitem__, layer, placement)
            await stage.worker.move_experts(layer, placement, taken)

    async def unload(self, stage: KeptStage) -> None:
        """Ends the stage, if it is not ended yet."""
        async with self._lock:
            await self._end_all([stage])

    async def close(self) -> None:
        """Ends all stages, for good."""
        for stage in self._stages:
            stage.call_off_timer()
        await self.ending()
        async with self._lock:
            await self._end_all(list(self._stages))

    async def ending(self) -> None:
        """Waits until the stages whose time is over have ended."""
        if self._ending:
            await asyncio.wait(self._ending)

    def _used(self, stage: KeptStage) -> KeptStage:
        stage.call_off_timer()
        stage.in_use = True
        return stage

    def _keep(self, stage: KeptStage) -> None:
        """The stage is idle from now on, and ended after a while."""
        stage.call_off_timer()
        stage.in_use = False
        stage.timer = self._call_later(self._settings.keep_alive_s, lambda: self._expire(stage))

    def _expire(self, stage: KeptStage) -> None:
        stage.timer = None
        ending = asyncio.create_task(self._end_if_idle(stage))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _end_if_idle(self, stage: KeptStage) -> None:
        async with self._lock:
            if not stage.in_use and stage.timer is None:
                await self._end_all([stage])

    def _in_the_way(self, spec: StageSpec, model: OpenedModel, instead_of: KeptStage | None) -> list[KeptStage]:
        """The stages that must end for one of `spec`: what it replaces, and idle ones as far as memory asks for it."""
        node = self._settings.node
        if spec.digest != model.digest:
            raise ModelMismatchError(
                f"Model {spec.model} on node {node} has digest {model.digest}, the plan wants {spec.digest}.",
                node=node,
                remedy="Copy the same model files to every machine.",
            )
        devices = self._devices(self.own_bytes)
        others = [stage for stage in self._stages if stage is not instead_of]
        staying = [stage for stage in others if stage.in_use]
        idle = [stage for stage in others if not stage.in_use]
        check_memory_fits(spec, model, devices, node, [stage.taken for stage in staying])
        if len(staying) >= MAX_STAGES:
            message = f"Node {node} has {MAX_STAGES} stages in use, as many as it may."
            raise PlanDoesNotFitError(message, node=node, remedy="Unload one of them.")
        ended = [instead_of] if instead_of else []
        while idle and not (
            len(staying) + len(idle) < MAX_STAGES
            and fits(spec, model, devices, [stage.taken for stage in (*staying, *idle)])
        ):
            ended.append(idle.pop(0))
        return ended

    async def _start(self, spec: StageSpec, model: OpenedModel, on_progress: OnProgress) -> KeptStage:
        worker = await self._spawn(spec.devices)
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
        layers = f"layers {spec.first_layer} to {spec.last_layer} of {spec.model}"
        log.info("Loaded %s.", layers)
        taken = StageBytes(stage=layers, on=device_bytes(spec, model))
        parts = ModelSizes.of_stage(model, spec).parts(spec.sharing)
        placements = first_placements(model.spec, range(spec.first_layer, spec.last_layer + 1), parts)
        stage = KeptStage(spec=spec, started=started, worker=worker, taken=taken, placements=placements)
        worker.watch_experts(functools.partial(self._experts_chosen, stage))
        return stage

    def _experts_chosen(self, stage: KeptStage, chosen: ChosenExperts) -> None:
        if stage.in_use and self._tell_experts:
            self._tell_experts(stage, chosen)

    async def _spawn(self, devices: Sequence[str]) -> Worker:
        worker: Worker | None = None  # while a group is spawned, one of its ranks may be lost already
        worker = await self._spawn_worker(devices, lambda error: self._lost(worker, error))
        return worker

    async def _end_all(self, stages: Sequence[KeptStage]) -> None:
        for stage in stages:
            if stage in self._stages:
                self._stages.remove(stage)
                stage.call_off_timer()
                await stage.worker.stop()
                log.info("Unloaded %s.", stage.taken.stage)

    def _lost(self, worker: Worker | None, error: LayerlineError) -> None:
        stage = next((stage for stage in self._stages if stage.worker is worker), None)
        if stage is None:
            return
        self._stages.remove(stage)
        stage.call_off_timer()
        if stage.in_use and self._tell_holder:
            self._tell_holder(stage, error)
