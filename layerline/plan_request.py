"""What a user asks of the planner."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from layerline.checks import require, require_name
from layerline.option import Listed, OneOf, WholeNumber, option, read_options, wrong
from layerline.plan import (
    DTYPES,
    KV_DTYPES,
    MAX_CONTEXT_TOKENS,
    MAX_LAYERS,
    PRECISIONS,
    WEIGHTS,
    Computing,
)
from layerline.sharing import MAX_DEVICES, SHARING_OF_EXPERTS, Sharing


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
    experts: str = option(
        "auto",
        OneOf(("auto", *SHARING_OF_EXPERTS)),
        "How the devices of a node share experts: split has some columns of every one on each device, spread some of "
        "them whole, which are moved as the rows that choose them change. [default: auto, chosen for each node]",
    )
    expert_device: str = option(
        "auto",
        OneOf(("auto", "cpu", "none")),
        "Where experts lie that have no room beside attention: on the node's CPU, or nowhere. [default: auto, on the "
        "CPU if the model, or the context that is wished, does not fit otherwise]",
    )
    dtype: str = option(
        "",
        OneOf(DTYPES),
        "What the numbers between layers are: 4 bytes each, or 2. [default: as it is where the model is in service, "
        "else float32 where only kernels compute, bfloat16 where torch does]",
    )
    weights: str = option(
        "",
        OneOf(WEIGHTS),
        "What weights are held in; int8 and int4 round them as they are loaded. [default: as it is where the model is "
        "in service, else as they are stored where they are multiplied so or nothing else fits, as --dtype elsewhere]",
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
        divided = self.experts == "split" and self.expert_device == "cpu"
        require(not divided, "experts that lie on a CPU beside GPUs are whole, so that they cannot be split")

    @property
    def asked_precision(self) -> str:
        """The precision that is asked for; whoever asks for float32 alone means all of it."""
        return self.precision or ("full" if self.dtype == "float32" else "")

    def resolved(self, computing: Computing) -> PlanRequest:
        """The same with all of them said, for a model that is to be loaded.

        Where each device computes as it can, `weights` and `precision` are those of the kernels. ValueError where torch
        is to compute what only the kernels can.
        """
        if computing != "kernels":
            self._check_for_torch()
        if computing == "torch":
            own = self.dtype or self._exact
            return replace(self, dtype=own, weights=self.weights or own, kv_dtype=self.kv_dtype or own, precision="")
        precision = self.asked_precision or "standard"
        dtype = self.dtype or ("float32" if computing == "kernels" else self._exact)
        coarse = "float16" if computing == "kernels" else dtype
        kv_dtype = self.kv_dtype or ("float32" if precision == "full" else coarse)
        return replace(self, dtype=dtype, weights=self.weights or "stored", kv_dtype=kv_dtype, precision=precision)

    @property
    def _exact(self) -> str:
        """What torch computes in if nobody says it."""
        if self.weights in DTYPES:
            return self.weights
        return "float32" if self.precision == "full" else DTYPES[0]

    def _check_for_torch(self) -> None:
        dtype = self.dtype or self._exact
        held = self.weights not in DTYPES or self.weights == dtype
        require(held, f"weights in {self.weights} cannot be computed with in {dtype}")
        computable = self.precision == "full" and dtype == "float32"
        require(not self.precision or computable, f"products in {self.precision} precision are the kernels' alone")

    def takes(self, degrees: Collection[int]) -> bool:
        """Whether stages that span so many devices each are what `tensor_parallel` asks for."""
        return not self.tensor_parallel or max(degrees) == self.tensor_parallel

    def shares(self, sharings: Collection[Sharing]) -> bool:
        """Whether stages that are shared so have experts as is asked for."""
        several = [sharing.experts == "spread" for sharing in sharings if sharing.devices > 1]
        asked = {"auto": True, "split": not any(several), "spread": bool(several) and all(several)}
        beside = any(sharing.beside for sharing in sharings)
        return asked[self.experts] and {"auto": True, "none": not beside, "cpu": beside}[self.expert_device]


class PlanOptions(TypedDict, total=False):
    """The options of `PlanRequest` as keywords of `plan` and `prepare`; a test holds that none is missing."""

    layers: Sequence[ManualStage]
    tensor_parallel: int
    experts: str
    expert_device: str
    dtype: str
    weights: str
    precision: str
    kv_dtype: str
    context_tokens: int
