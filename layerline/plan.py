"""Who holds what: stage specifications and the plan they make up."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from layerline.checks import require, require_name, require_one_of
from layerline.option import Listed, OneOf, WholeNumber, option, read_options, wrong

DTYPES = ("bfloat16", "float32")  # of activations
WEIGHTS = ("stored", "bfloat16", "float32", "int8", "int4")  # the forms that weights are held in
PRECISIONS = ("fast", "standard", "full")  # of products by the kernels: rows as integers of 8, 16 or 24 bits
KV_DTYPES = ("float16", "bfloat16", "float32", "int8")
DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4}
MAX_LAYERS = 1024
MAX_PAGES = 1 << 24
MAX_DEVICES = 64  # of a stage
MAX_PROPORTION = 1_000_000
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

    def __post_init__(self) -> None:
        require_name(self.model, "model name")
        require_name(self.digest, "model digest")
        require(0 <= self.first_layer <= self.last_layer < MAX_LAYERS, "layers are not a range")
        require_one_of(self.dtype, DTYPES, "dtype")
        require_one_of(self.kv_dtype, ("", *KV_DTYPES), "kv_dtype")
        require_one_of(self.weights, ("", *WEIGHTS), "weights")
        require_one_of(self.precision, ("", *PRECISIONS), "precision")
        require(bool(self.precision) or self.weights in ("", self.dtype), "torch holds weights as it computes")
        require(0 < len(self.devices) <= MAX_DEVICES, f"a stage needs 1 to {MAX_DEVICES} devices")
        require(len(set(self.devices)) == len(self.devices), "a stage names a device twice")
        require(len(self.proportions) in (0, len(self.devices)), "a stage needs a proportion for each device, or none")
        require(
            all(0 < proportion <= MAX_PROPORTION for proportion in self.proportions),
            f"proportions must be 1 to {MAX_PROPORTION}",
        )
        require(0 < self.pages <= MAX_PAGES, "pages out of range")
        require(0 < self.page_tokens <= 4096, "page_tokens out of range")
        require(0 < self.max_rows <= 65536, "max_rows out of range")

    @property
    def held_kv_dtype(self) -> str:
        """What keys and values are held in."""
        return self.kv_dtype or self.dtype

    @property
    def held_weights(self) -> str:
        """What weights are held in."""
        return self.weights or self.dtype


@dataclass(frozen=True, kw_only=True, slots=True)
class ManualStage:
    """One piece of `--layers a=0-14,b=15-29`: a node by name or id, and its layers, inclusive."""

    node: str
    first_layer: int
    last_layer: int


class _ManualStageTaken:
    """What `layers` takes of each stage."""

    _layer = WholeNumber(0, MAX_LAYERS - 1)

    def read(self, value: object) -> ManualStage:
        """It."""
        if not isinstance(value, ManualStage):
            raise wrong("a ManualStage", value)
        if not isinstance(value.node, str) or not value.node:
            raise wrong("of a node by name or id", value.node)
        first, last = self._layer.read(value.first_layer), self._layer.read(value.last_layer)
        if (value.first_layer, value.last_layer) != (first, last) or value.first_layer > value.last_layer:
            raise wrong("from a first layer to a last one", value)
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """What a user asks of the planner. `context_tokens` 0 lets it choose; empty `layers` likewise.

    Of `dtype` (activations), `weights`, `precision` and `kv_dtype` an empty one is "as it is": any will do where the
    model is in service, and `resolved` says what it is where it is not. `tensor_parallel` is how many devices of its
    node a stage is to span, 0 for the planner's choice; nodes with fewer give what they have, where the others do not
    hold the model.
    """

    model: str
    layers: tuple[ManualStage, ...] = option(
        (),
        Listed(_ManualStageTaken(), "ManualStages"),
        "Place the layers by hand, first and last included, as in a=0-14,b=15-29. [default: planned]",
        metavar="NODE=A-B,...",
    )
    tensor_parallel: int = option(
        0,
        WholeNumber(0, MAX_DEVICES),
        "Split every layer of a stage over N devices of its node. [default: 0, chosen for each node]",
        metavar="N",
    )
    dtype: str = option(
        "",
        OneOf(DTYPES),
        "What the numbers between layers are: 4 bytes each, or 2. [default: as it is where the model is in service, "
        "else float32 where kernels compute, bfloat16 where torch does]",
    )
    weights: str = option(
        "",
        OneOf(WEIGHTS),
        "What weights are held in; int8 and int4 round them as they are loaded. [default: as it is where the model is "
        "in service, else as they are stored where kernels compute, as --dtype where torch does]",
    )
    precision: str = option(
        "",
        OneOf(PRECISIONS),
        "Bits with which the kernels multiply: fast 8, standard 16, full 24, which is float32. [default: as it is "
        "where the model is in service, else full with --dtype float32, standard without]",
    )
    kv_dtype: str = option(
        "",
        OneOf(KV_DTYPES),
        "What keys and values are held in; int8 takes half the memory of the 16-bit ones. [default: as it is where the "
        "model is in service, else as --dtype where torch computes; by kernels float32 in full precision, float16 in "
        "less]",
    )
    context_tokens: int = option(
        0,
        WholeNumber(0, MAX_CONTEXT_TOKENS),
        "Tokens that prompt and answer may have together; memory is kept for them. [default: 0, chosen]",
        metavar="TOKENS",
        flag="--context",
    )

    def __post_init__(self) -> None:
        require_name(self.model, "model name")
        read_options(self)

    @property
    def asked_precision(self) -> str:
        """The precision that is asked for; whoever asks for float32 alone means all of it."""
        return self.precision or ("full" if self.dtype == "float32" else "")

    def resolved(self, *, kernels: bool) -> PlanRequest:
        """The same with all of them said, for a model that is to be loaded; `kernels`: by them, not by torch.

        ValueError for torch where only the kernels can do what is asked.
        """
        if kernels:
            precision = self.asked_precision or "standard"
            kv_dtype = self.kv_dtype or ("float32" if precision == "full" else "float16")
            dtype, weights = self.dtype or "float32", self.weights or "stored"
            return replace(self, dtype=dtype, weights=weights, kv_dtype=kv_dtype, precision=precision)
        exact = "float32" if self.precision == "full" else DTYPES[0]
        dtype = self.dtype or (self.weights if self.weights in DTYPES else exact)
        require(self.weights in ("", dtype), f"weights in {self.weights} cannot be computed with in {dtype}")
        computable = self.precision == "full" and dtype == "float32"
        require(not self.precision or computable, f"products in {self.precision} precision are the kernels' alone")
        return replace(self, dtype=dtype, weights=dtype, kv_dtype=self.kv_dtype or dtype, precision="")

    def takes(self, degrees: Collection[int]) -> bool:
        """Whether stages that span so many devices each are what `tensor_parallel` asks for."""
        return not self.tensor_parallel or max(degrees) == self.tensor_parallel


class PlanOptions(TypedDict, total=False):
    """The options of `PlanRequest` as keywords of `plan` and `prepare`; a test holds that none is missing."""

    layers: Sequence[ManualStage]
    tensor_parallel: int
    dtype: str
    weights: str
    precision: str
    kv_dtype: str
    context_tokens: int


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
    precision: str = ""  # empty: computed by torch
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(len(self.pipelines) > 0, "a plan needs a pipeline")
        covered = all(pipeline.layers == self.layers for pipeline in self.pipelines)
        require(covered, "the stages do not cover the model")

    @property
    def stages(self) -> tuple[StagePlan, ...]:
        """The stages of all pipelines."""
        return tuple(stage for pipeline in self.pipelines for stage in pipeline.stages)
