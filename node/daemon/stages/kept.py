"""A stage in memory, and what its keeper is given: workers, models, epochs and timers, each as the keeper uses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from layerline.errors import LayerlineError
from layerline.facts import LoadedStage
from layerline.hold import LayerPlacement, Place
from layerline.models.expert_placement import ExpertPlacement
from layerline.models.indexer import OnProgress
from layerline.plan import StageSpec
from node.daemon.stages.memory import StageBytes
from node.daemon.stages.model_library import OpenedModel
from node.pipe import ChosenExperts, Placed, Start, Started

OnLost = Callable[[LayerlineError], None]
OnChosenExperts = Callable[[ChosenExperts], None]


class Worker(Protocol):
    """A stage's workers: `node.daemon.workers.group.WorkerGroup`, or a fake."""

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

    def watch_experts(self, tell: OnChosenExperts) -> None:
        """`tell` hears from now on which experts rows choose."""

    async def move_experts(self, layer: int, placement: ExpertPlacement, on_taken: Callable[[], None]) -> None:
        """Places the experts of a layer so between two steps, or raises why they stay where they are."""

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


@dataclass(eq=False, kw_only=True, slots=True)
class KeptStage:
    """A stage, its worker and what that has said of itself. It is `in_use` by the holder, or idle until `timer`."""

    spec: StageSpec
    started: Started
    worker: Worker
    taken: StageBytes
    placements: dict[int, ExpertPlacement]  # of the layers whose experts are spread
    in_use: bool = True
    timer: Timer | None = None

    @property
    def placed_experts(self) -> tuple[LayerPlacement, ...]:
        """Where experts are, layer by layer."""
        return tuple(LayerPlacement.of(layer, self.placements[layer]) for layer in sorted(self.placements))

    @property
    def loaded(self) -> LoadedStage:
        """What the node tells of it."""
        return LoadedStage(spec=self.spec, weights_bytes=self.started.weights_bytes, kv_bytes=self.started.kv_bytes)

    @property
    def own_bytes(self) -> Mapping[str, int]:
        """What it takes on each device at this moment; KV pages on a CPU take nothing until they are used.

        Experts that lie beside the devices are in the memory of all ranks.
        """
        resident = self.worker.resident_bytes
        of_ranks = dict(zip(self.spec.devices, resident, strict=True))
        return {
            device: min(taken.held, of_ranks.get(device, sum(resident))) if device.startswith("cpu") else taken.held
            for device, taken in self.taken.on.items()
        }

    def call_off_timer(self) -> None:
        """Leaves the stage without an end of its keeping."""
        timer, self.timer = self.timer, None
        if timer:
            timer.cancel()
