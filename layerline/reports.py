"""What a coordinator tells about itself, its nodes, models and plans: nouns of the SDK and the commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerline.facts import NodeFacts
from layerline.plan import PipelinePlan, Plan, StagePlan


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorFacts:
    """Who a coordinator is; `model` is empty while none is loaded."""

    name: str
    version: str
    wire_version: int
    model: str
    address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReport:
    """One node that was found. `unusable` says why it cannot be used, and is empty if it can."""

    name: str
    address: str
    unusable: str
    facts: NodeFacts | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NodesReport:
    """Every node found, and the interfaces and addresses that were searched."""

    nodes: tuple[NodeReport, ...]
    searched: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReport:
    """A model and the nodes that have its files."""

    name: str
    digest: str
    size_bytes: int
    nodes: tuple[str, ...]
    loaded: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelsReport:
    """Every model that a node has."""

    models: tuple[ModelReport, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageReport:
    """One stage of a plan as users see it; layers are inclusive, memory in bytes, of all the devices together.

    `proportions` is what the devices take of each layer, in proportion to each other; empty if all take the same.
    `experts` is how they share experts, "split" or "spread"; empty if there are none, or is one device. Some lie on
    `expert_device` instead, where they take `beside_bytes`, unless that is empty.
    """

    node: str
    node_id: str
    first_layer: int
    last_layer: int
    devices: tuple[str, ...]
    weights_bytes: int
    kv_bytes: int
    workspace_bytes: int
    budget_bytes: int
    why: str
    proportions: tuple[int, ...] = ()
    experts: str = ""
    expert_device: str = ""
    beside_bytes: int = 0

    @classmethod
    def of(cls, stage: StagePlan) -> StageReport:
        """The report of a planned stage."""
        return cls(
            node=stage.node,
            node_id=stage.node_id,
            first_layer=stage.spec.first_layer,
            last_layer=stage.spec.last_layer,
            devices=stage.spec.devices,
            weights_bytes=stage.weights_bytes,
            kv_bytes=stage.kv_bytes,
            workspace_bytes=stage.workspace_bytes,
            budget_bytes=stage.budget_bytes,
            why=stage.why,
            proportions=stage.spec.proportions,
            experts=stage.spec.experts if stage.has_experts and len(stage.spec.devices) > 1 else "",
            expert_device=stage.spec.expert_device,
            beside_bytes=stage.beside_bytes,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineReport:
    """The stages that hold the whole model once; `epoch` 0 means that they were not put into effect."""

    stages: tuple[StageReport, ...]
    epoch: int = 0

    @classmethod
    def of(cls, pipeline: PipelinePlan) -> PipelineReport:
        """The report of a planned pipeline."""
        return cls(stages=tuple(map(StageReport.of, pipeline.stages)), epoch=pipeline.epoch)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanReport:
    """A plan as users see it."""

    model: str
    digest: str
    dtype: str
    layers: int
    context_tokens: int
    pipelines: tuple[PipelineReport, ...]
    notes: tuple[str, ...]
    kv_dtype: str
    weights: str
    precision: str = ""  # of the stages that the kernels compute; empty: there are none

    @classmethod
    def of(cls, plan: Plan) -> PlanReport:
        """The report of a plan."""
        return cls(
            model=plan.model,
            digest=plan.digest,
            dtype=plan.dtype,
            layers=plan.layers,
            context_tokens=plan.context_tokens,
            pipelines=tuple(map(PipelineReport.of, plan.pipelines)),
            notes=plan.notes,
            kv_dtype=plan.kv_dtype,
            weights=plan.weights,
            precision=plan.precision,
        )

    @property
    def stages(self) -> tuple[StageReport, ...]:
        """The stages of all pipelines."""
        return tuple(stage for pipeline in self.pipelines for stage in pipeline.stages)


@dataclass(frozen=True, kw_only=True, slots=True)
class Announcement:
    """A sentence about what is going on while a model is made ready."""

    text: str


def waiting_sentence(names: Sequence[str]) -> str:
    """Says of nodes that a plan waits for them."""
    devices = "which still measures its devices" if len(names) == 1 else "which still measure their devices"
    return f"Waiting for {' and '.join(names)}, {devices}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The plan that is being put into effect."""

    plan: PlanReport


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeProgress:
    """How far a node is: `phase` is "index" or "load"."""

    node: str
    phase: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """The model answers now."""

    plan: PlanReport


PrepareEvent = Announcement | Planned | NodeProgress | Ready
