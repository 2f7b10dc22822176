"""Who holds what: stage specifications and the plan they make up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from layerline.checks import require, require_name, require_one_of
from layerline.sharing import Sharing

DTYPES = ("bfloat16", "float32")  # of activations
WEIGHTS = ("stored", "bfloat16", "float32", "int8", "int4")  # the forms that weights are held in
PRECISIONS = ("fast", "standard", "full")  # of products by the kernels: rows as integers of 8, 16 or 24 bits
Computing = Literal["kernels", "torch", "each"]  # who computes a pipeline; each: every device as it can
KV_DTYPES = ("float16", "bfloat16", "float32", "int8")
DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4}
MAX_LAYERS = 1024
MAX_PAGES = 1 << 24
MAX_CONTEXT_TOKENS = 1 << 24


def form_in_words(weights: str) -> str:
    """What weights are held in, as a phrase."""
    return "as stored" if weights == "stored" else f"in {weights}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSpec:
    """All that decides what a worker loads; two equal specs are the same stage, so one can be adopted."""

    model: str
    digest: str
    first_layer: int
    last_layer: int  # inclusive
    dtype: str
    devices: tuple[str, ...]
    pages: int
    page_tokens: int
    max_rows: int  # the most rows a step may have
    kv_dtype: str = ""  # what keys and values are held in; empty: as dtype
    weights: str = ""  # what weights are held in; empty: as dtype
    precision: str = ""  # of the kernels; empty: computed by torch
    proportions: tuple[int, ...] = ()  # what the devices take, in proportion to each other; empty: all the same
    long_context: bool = False  # rotations are those of `ModelSpec.lengthened`
    experts: str = "split"  # how the devices share them, and the next two: as `Sharing` has it
    attention_devices: int = 0
    repeats: int = 0
    expert_device: str = ""  # where experts lie that have no room on the devices; empty: there are none
    device_experts: int = 0  # how many of a layer's lie on each of the devices then

    def __post_init__(self) -> None:
        require_name(self.model, "model name")
        require_name(self.digest, "model digest")
        require(0 <= self.first_layer <= self.last_layer < MAX_LAYERS, "layers are not a range")
        require_one_of(self.dtype, DTYPES, "dtype")
        require_one_of(self.kv_dtype, ("", *KV_DTYPES), "kv_dtype")
        require_one_of(self.weights, ("", *WEIGHTS), "weights")
        require_one_of(self.precision, ("", *PRECISIONS), "precision")
        unlike = self.weights in DTYPES and self.weights != self.dtype
        require(bool(self.precision) or not unlike, "torch holds floating-point weights as it computes")
        require(self.sharing.devices > 0, "a stage needs a device")
        require(len(set(self.devices)) == len(self.devices), "a stage names a device twice")
        beside = self.expert_device
        require(not beside or beside.split(":")[0] == "cpu", "experts lie beside the devices on a CPU alone")
        require(not beside or beside not in self.devices, "experts beside the devices lie on another one")
        require(not (beside and self.precision), "kernels compute where all experts lie")
        require(0 < self.pages <= MAX_PAGES, "pages out of range")
        require(0 < self.page_tokens <= 4096, "page_tokens out of range")
        require(0 < self.max_rows <= 65536, "max_rows out of range")

    @property
    def sharing(self) -> Sharing:
        """How its devices share its layers; ValueError if they cannot."""
        return Sharing(
            devices=len(self.devices),
            proportions=self.proportions,
            experts=self.experts,
            attention_devices=self.attention_devices,
            repeats=self.repeats,
            beside=bool(self.expert_device),
            device_experts=self.device_experts,
        )

    @property
    def held_kv_dtype(self) -> str:
        """What keys and values are held in."""
        return self.kv_dtype or self.dtype

    @property
    def held_weights(self) -> str:
        """What weights are held in."""
        return self.weights or self.dtype


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePlan:
    """One stage of a plan: its node, its spec, and the memory it needs out of the node's budget."""

    node_id: str
    node: str  # the node's name
    spec: StageSpec
    weights_bytes: int
    kv_bytes: int
    workspace_bytes: int
    budget_bytes: int
    why: str = ""
    has_experts: bool = False
    beside_bytes: int = 0  # of experts that lie on the spec's expert_device

    def has_layer(self, layer: int) -> bool:
        """Whether a layer is one of the stage's."""
        return self.spec.first_layer <= layer <= self.spec.last_layer

    @property
    def needed_bytes(self) -> int:
        """What the stage takes in all."""
        return self.weights_bytes + self.kv_bytes + self.workspace_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelinePlan:
    """The ordered stages that hold a whole model once. `epoch` 0 is a pipeline not yet put into effect."""

    stages: tuple[StagePlan, ...]
    epoch: int = 0

    def __post_init__(self) -> None:
        require(len(self.stages) > 0, "a pipeline needs stages")
        next_layer = 0
        for stage in self.stages:
            require(stage.spec.first_layer == next_layer, "the stages do not follow each other")
            next_layer = stage.spec.last_layer + 1
        sizes = {(stage.spec.pages, stage.spec.page_tokens, stage.spec.max_rows) for stage in self.stages}
        require(len(sizes) == 1, "the stages of a pipeline are unlike in pages or rows")

    @property
    def layers(self) -> int:
        """How many layers its stages have."""
        return self.stages[-1].spec.last_layer + 1

    @property
    def pages(self) -> int:
        """The KV pages of each stage: one number of a page means the same positions in all of them."""
        return self.stages[0].spec.pages

    @property
    def page_tokens(self) -> int:
        """The positions of a page."""
        return self.stages[0].spec.page_tokens

    @property
    def max_rows(self) -> int:
        """The most rows a step may have."""
        return self.stages[0].spec.max_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The pipelines that are to hold a model, each of them all of it."""

    model: str
    digest: str
    dtype: str
    layers: int
    context_tokens: int  # the most positions one sequence may have
    pipelines: tuple[PipelinePlan, ...]
    kv_dtype: str
    weights: str
    precision: str = ""  # of the stages that the kernels compute; empty: there are none
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(len(self.pipelines) > 0, "a plan needs a pipeline")
        covered = all(pipeline.layers == self.layers for pipeline in self.pipelines)
        require(covered, "the stages do not cover the model")

    @property
    def stages(self) -> tuple[StagePlan, ...]:
        """The stages of all pipelines."""
        return tuple(stage for pipeline in self.pipelines for stage in pipeline.stages)

    @property
    def computing(self) -> Computing:
        """Who computes its stages."""
        found = {bool(stage.spec.precision) for stage in self.stages}
        if len(found) == 2:
            return "each"
        return "kernels" if True in found else "torch"
