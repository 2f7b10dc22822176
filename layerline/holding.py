"""What a coordinator and the node it holds say to each other on the `Hold` stream.

Commands carry a number that their answers repeat. `Heartbeat` goes both ways; the hold lasts as long as the
stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerline.checks import require, require_name
from layerline.errors import LayerlineError
from layerline.frames import MAX_EPOCH, PLAN_KEY_BYTES
from layerline.plan import StageSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldHello:
    """The first command on the stream."""

    wire_version: int
    coordinator: str

    def __post_init__(self) -> None:
        require_name(self.coordinator, "coordinator name")


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Have this stage in memory; answered by LoadProgress and then Loaded or Failed."""

    command: int
    spec: StageSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """The next stage: its node, and host:port of its data port to be tried in order."""

    node_id: str
    name: str
    addresses: tuple[str, ...]

    def __post_init__(self) -> None:
        require_name(self.node_id, "node id")
        require_name(self.name, "node name")
        require(0 < len(self.addresses) <= 64, "a peer needs 1 to 64 addresses")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bind:
    """Take this place in a plan and dial the next stage; answered by Bound or Failed."""

    command: int
    epoch: int
    plan_key: bytes
    stage_index: int
    stage_count: int
    next: Peer | None

    def __post_init__(self) -> None:
        require(0 < self.epoch <= MAX_EPOCH, "epoch out of range")
        require(len(self.plan_key) == PLAN_KEY_BYTES, "plan key of the wrong length")
        require(0 <= self.stage_index < self.stage_count <= 1024, "stage index out of range")
        require(
            (self.next is None) == (self.stage_index == self.stage_count - 1),
            "only the last stage has no next",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Unload:
    """End the stage's worker; answered by Unloaded."""

    command: int


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
        require(0 <= self.last_epoch < MAX_EPOCH, "last epoch out of range")


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
    data_port: int
    weights_bytes: int
    kv_bytes: int
    adopted: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The stage has its place; `next_address` is where it reached the next one."""

    command: int
    next_address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unloaded:
    """Nothing is loaded any more."""

    command: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """A command failed; the hold goes on."""

    command: int
    error: LayerlineError


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerLost:
    """The loaded stage's worker is gone; the hold goes on with nothing loaded."""

    error: LayerlineError


@dataclass(frozen=True, kw_only=True, slots=True)
class Draining:
    """The daemon will end within seconds."""


HoldCommand = HoldHello | Load | Bind | Unload | Heartbeat
HoldEvent = Welcome | LoadProgress | Loaded | Bound | Unloaded | Failed | WorkerLost | Draining | Heartbeat
