"""What a coordinator and the node it holds say to each other on the `Hold` stream.

Commands carry a number that their answers repeat. `stage` is the coordinator's number for a stage, from 1 on, which
stands for it as long as the hold. `Heartbeat` goes both ways; the hold lasts as long as the stream.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from layerline.checks import require, require_name
from layerline.errors import LayerlineError
from layerline.frames import MAX_EPOCH, PLAN_KEY_BYTES
from layerline.models.expert_placement import ExpertPlacement
from layerline.peer import Peer
from layerline.plan import MAX_LAYERS, StageSpec
from layerline.sharing import MAX_DEVICES, MOST_EXPERTS
from layerline.version import WIRE_VERSION

MAX_COUNTED = 1 << 62  # rows of an expert
_INSTANCE = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Heartbeats:
    """How often each end of a hold shows that it lives, and how long the other one waits for any sign of it."""

    interval_s: float = 1.0
    silence_s: float = 8.0


HEARTBEATS = Heartbeats()


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldHello:
    """The first command on the stream.

    `coordinator` is a name for people, and `port` where it takes requests of clients, 0 if it takes none from other
    machines. `instance` is 16 random hexadecimal digits that tell one process of a
    coordinator from every other, whatever it is called.
    """

    wire_version: int
    coordinator: str
    instance: str
    port: int = 0

    def __post_init__(self) -> None:
        require_name(self.coordinator, "coordinator name")
        require(0 <= self.port < 1 << 16, "the coordinator's port is out of range")
        is_instance = _INSTANCE.fullmatch(self.instance) is not None
        require(is_instance, "the coordinator's instance is not 16 hexadecimal digits")

    @classmethod
    def of(cls, coordinator: str, port: int = 0) -> HoldHello:
        """The hello of a new instance, which that coordinator says to every node."""
        return cls(wire_version=WIRE_VERSION, coordinator=coordinator, instance=os.urandom(8).hex(), port=port)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Have this stage in memory; answered by LoadProgress and then Loaded or Failed."""

    command: int
    stage: int
    spec: StageSpec

    def __post_init__(self) -> None:
        require(self.stage > 0, "stages are numbered from 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A stage's place in a plan; `plan_key` is known to the members of this plan alone.

    `next` is the data port of the next stage, None for the last one.
    """

    epoch: int
    plan_key: bytes
    stage_index: int
    stage_count: int
    next: Peer | None

    def __post_init__(self) -> None:
        require(0 < self.epoch < MAX_EPOCH, "epoch out of range")
        require(len(self.plan_key) == PLAN_KEY_BYTES, "plan key of the wrong length")
        require(0 <= self.stage_index < self.stage_count <= 1024, "stage index out of range")
        require(
            (self.next is None) == (self.stage_index == self.stage_count - 1),
            "only the last stage has no next",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Bind:
    """Have the stage take this place and dial the next one; answered by Bound or Failed."""

    command: int
    stage: int
    place: Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Unload:
    """End the stage's worker; answered by Unloaded."""

    command: int
    stage: int


@dataclass(frozen=True, slots=True)
class RankExperts:
    """The experts that one rank has of a layer."""

    experts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerPlacement:
    """Where the experts of a layer are, rank by rank."""

    layer: int
    ranks: tuple[RankExperts, ...]

    def __post_init__(self) -> None:
        require(0 <= self.layer < MAX_LAYERS, "layer out of range")
        require(0 < len(self.ranks) <= MAX_DEVICES, "a placement on no rank, or on too many")

    @classmethod
    def of(cls, layer: int, placement: ExpertPlacement) -> LayerPlacement:
        """That of a layer."""
        return cls(layer=layer, ranks=tuple(map(RankExperts, placement.ranks)))

    @property
    def placement(self) -> ExpertPlacement:
        """It by itself; ValueError if it is none."""
        return ExpertPlacement(tuple(rank.experts for rank in self.ranks))


@dataclass(frozen=True, kw_only=True, slots=True)
class MoveExperts:
    """Have the stage place the experts of a layer so, between two steps; answered by ExpertsMoved or Failed.

    After a failure they are where they were.
    """

    command: int
    stage: int
    placement: LayerPlacement

    def __post_init__(self) -> None:
        _ = self.placement.placement  # it is one


@dataclass(frozen=True, kw_only=True, slots=True)
class Heartbeat:
    """Nothing but a sign of life."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Welcome:
    """The hold was granted."""

    node_id: str
    last_epoch: int

    def __post_init__(self) -> None:
        require_name(self.node_id, "node id")
        require(0 <= self.last_epoch < MAX_EPOCH, f"last epoch {self.last_epoch} is none that a plan can follow")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadProgress:
    """Bytes of weights in place so far."""

    command: int
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """The stage is in memory and its data port listens."""

    command: int
    stage: int
    data_port: int
    weights_bytes: int
    kv_bytes: int
    adopted: bool
    placements: tuple[LayerPlacement, ...] = ()  # of the layers whose experts are spread

    def __post_init__(self) -> None:
        require(0 < self.data_port < 1 << 16, "data port is no port")
        require(self.weights_bytes >= 0 and self.kv_bytes >= 0, "sizes cannot be negative")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The stage has its place; `next_address` is where it reached the next one."""

    command: int
    next_address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unloaded:
    """The stage is not loaded any more."""

    command: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """A command failed; the hold goes on."""

    command: int
    error: LayerlineError


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerLost:
    """The stage's worker is gone, and the stage with it; the hold goes on."""

    stage: int
    error: LayerlineError


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertsMoved:
    """The experts of a layer are where they were to be."""

    command: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRows:
    """How many rows chose each expert of a layer since the stage was loaded."""

    layer: int
    rows: tuple[int, ...]

    def __post_init__(self) -> None:
        require(0 <= self.layer < MAX_LAYERS, "layer out of range")
        require(0 < len(self.rows) <= MOST_EXPERTS, "rows of no expert, or of too many")
        require(all(0 <= each < MAX_COUNTED for each in self.rows), "more rows than there can be")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertRows:
    """Those of all layers of a stage that have experts; said by itself while the stage computes."""

    stage: int
    layers: tuple[LayerRows, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Draining:
    """The daemon will end within seconds."""


HoldCommand = HoldHello | Load | Bind | MoveExperts | Unload | Heartbeat
HoldEvent = (
    Welcome
    | LoadProgress
    | Loaded
    | Bound
    | Unloaded
    | Failed
    | WorkerLost
    | ExpertsMoved
    | ExpertRows
    | Draining
    | Heartbeat
)
