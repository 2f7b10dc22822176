"""What was decided, with the reasons: who takes which layers, who takes none, or that it cannot be.

Reasons are facts with their figures. How they are said is the business of `words`.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.planning.candidates import Candidates
from coordinator.planning.device_group import DeviceGroup
from coordinator.planning.problem import Problem
from coordinator.planning.split import Split
from layerline.facts import NodeFacts


@dataclass(frozen=True, slots=True)
class ByHand:
    """The user gave these layers to the node."""


@dataclass(frozen=True, slots=True)
class HoldsAll:
    """The node holds the whole model: the fastest that does, or the only one that can be used."""

    is_only: bool


@dataclass(frozen=True, slots=True)
class Part:
    """The node has a part of the fastest split: its time of a token, that of all stages, and its room for layers."""

    time_s: float
    stages_s: float
    most_layers: int


StageReason = ByHand | HoldsAll | Part


@dataclass(frozen=True, slots=True)
class AsAskedFor:
    """The user asked for so many devices."""


@dataclass(frozen=True, slots=True)
class AllReduceNotMeasured:
    """One device, as nothing says how long an all-reduce between so many takes."""

    devices: int


@dataclass(frozen=True, slots=True)
class Faster:
    """One device or several, as a token takes so long on one and on several."""

    alone_s: float
    devices: int
    group_s: float
    all_reduce_s: float


@dataclass(frozen=True, slots=True)
class TooLargeForOne:
    """Several devices, as no single one offers what the stage takes."""

    needed_bytes: int
    offered_bytes: int


@dataclass(frozen=True, slots=True)
class Roomier:
    """Several devices, for more KV pages than one has room for."""

    tokens: int
    alone_tokens: int


DegreeReason = AsAskedFor | AllReduceNotMeasured | Faster | TooLargeForOne | Roomier


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedCost:
    """What a way of sharing experts costs: the memory of a stage on all devices, the time of a token, whether it
    fits.
    """

    needed_bytes: int
    time_s: float
    fits: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertsShared:
    """Experts split by columns, or spread: what that costs and what the other way would, if that can be.

    Of the `chosen` experts of a row the busiest of the devices has `of_a_row` where they are spread.
    """

    spread: bool
    asked: bool
    chosen: int
    of_a_row: float
    all_reduce_s: float
    own: SharedCost
    other: SharedCost | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertsBeside:
    """So many of a layer's experts lie on each device, the others on a CPU, where they take `beside_bytes`."""

    asked: bool
    device: str
    on_device: int
    experts: int
    beside_bytes: int


ExpertsReason = ExpertsShared | ExpertsBeside


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """The layers that a device group takes, why these, why so many devices, and why it shares experts as it does.

    The last two are None where there is no choice.
    """

    group: DeviceGroup
    layers: range
    reason: StageReason
    degree_reason: DegreeReason | None = None
    experts_reason: ExpertsReason | None = None

    @property
    def most_pages(self) -> int:
        """The most KV pages that there is room for."""
        return self.group.most_pages(self.layers)


@dataclass(frozen=True, slots=True)
class NotReady:
    """The node is in another state."""

    state: str


@dataclass(frozen=True, slots=True)
class NoDevice:
    """The node offers none."""


@dataclass(frozen=True, slots=True)
class TooFewDevices:
    """The user asked for stages over so many, and the others hold the model."""

    asked: int


@dataclass(frozen=True, slots=True)
class TooSmall:
    """What the node offers is too little for the smallest layer."""

    offered_bytes: int
    least_bytes: int


@dataclass(frozen=True, slots=True)
class FitsOne:
    """The model fits another node alone."""

    node: str


@dataclass(frozen=True, slots=True)
class TooSlow:
    """A layer takes longer there than on any node that is used."""

    layer_s: float
    slowest_used_s: float


@dataclass(frozen=True, slots=True)
class NotWorthTheHop:
    """The others hold the model, and one more stage costs a hop of so many seconds."""

    hop_s: float


LeftOutReason = NotReady | NoDevice | TooFewDevices | TooSmall | FitsOne | TooSlow | NotWorthTheHop


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A node that has no stage."""

    node: NodeFacts
    reason: LeftOutReason


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """Who takes what, with a context of so many tokens, of which one sequence takes `sequence_pages`."""

    candidates: Candidates
    context_tokens: int
    sequence_pages: int
    assignments: tuple[Assignment, ...]
    split: Split | None = None  # the search that found it
    left_out: tuple[LeftOut, ...] = ()

    @property
    def problem(self) -> Problem:
        """What was to be decided."""
        return self.candidates.problem

    @property
    def shares_as_asked(self) -> bool:
        """Whether the stages have experts as is asked for."""
        return self.problem.request.shares([each.group.sharing for each in self.assignments])

    @property
    def does_as_asked(self) -> bool:
        """Whether the stages also span as many devices as is asked for."""
        degrees = [len(each.group.ranks) for each in self.assignments]
        return self.problem.request.takes(degrees) and self.shares_as_asked


@dataclass(frozen=True, kw_only=True, slots=True)
class Misfit:
    """The model cannot be placed, not even with a context of so many tokens.

    `fits_otherwise`: it could be, if stages did not have to span as many devices, or have experts, as was asked for.
    """

    candidates: Candidates
    context_tokens: int
    sequence_pages: int
    left_out: tuple[LeftOut, ...] = ()
    owners: tuple[NodeFacts, ...] = ()  # of the layers given by hand
    fits_otherwise: bool = False

    @property
    def problem(self) -> Problem:
        """What was to be decided."""
        return self.candidates.problem
