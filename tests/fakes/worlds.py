"""Small worlds to plan in: nodes made of a few numbers, and models of well-known sizes."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.planning.problem import Problem
from layerline.facts import DeviceFacts, Holder, LoadedStage, ModelListing, NodeFacts
from layerline.models.spec import ModelSpec
from layerline.plan import Plan
from layerline.plan_request import PlanRequest
from layerline.version import WIRE_VERSION, __version__
from tests.fakes.cards import model_card
from tests.fakes.specs import decoder_spec

GIB = 1 << 30
MIB = 1 << 20


def model_spec(
    *,
    layers: int = 30,
    hidden: int = 576,
    intermediate: int = 1536,
    heads: int = 9,
    kv_heads: int = 3,
    vocabulary: int = 49152,
    context_tokens: int = 8192,
    tied_output: bool = True,
) -> ModelSpec:
    """A decoder; as it stands, SmolLM2 135M: 6.8 MiB a layer, 54 MiB a matrix in bfloat16."""
    return decoder_spec(
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=64,
        vocabulary=vocabulary,
        context_tokens=context_tokens,
        theta=100000.0,
        tied_output=tied_output,
    )


def device(
    name: str = "cpu",
    *,
    budget_bytes: int = GIB,
    gb_per_s: float = 20.0,
    tflops: float = 0.0,
    measured_while_busy: bool = False,
    kernels: str = "",
) -> DeviceFacts:
    """A device; its compute counts for nothing unless `tflops` is given."""
    return DeviceFacts(
        device=name,
        kind=name.partition(":")[0],
        name=f"fake {name}",
        threads=1 if name.startswith("cpu") else 0,
        total_bytes=2 * budget_bytes,
        free_bytes=budget_bytes,
        budget_bytes=budget_bytes,
        matrix_flops_per_s=tflops * 1e12,
        memory_bytes_per_s=gb_per_s * 1e9,
        measured_while_busy=measured_while_busy,
        kernels=kernels,
    )


def node(
    name: str,
    *devices: DeviceFacts,
    node_id: str = "",
    mib: int = 1024,
    gb_per_s: float = 20.0,
    state: str = "ready",
    wire_version: int = WIRE_VERSION,
    addresses: tuple[str, ...] = (),
    models: tuple[ModelListing, ...] = (),
    loaded: tuple[LoadedStage, ...] = (),
    held_by: Holder | None = None,
    all_reduce_us: float = 0.0,
) -> NodeFacts:
    """A node with `devices`, or with one CPU of `mib` MiB that reads `gb_per_s` GB a second."""
    return NodeFacts(
        node_id=node_id or f"id-{name}",
        name=name,
        version=__version__,
        wire_version=wire_version,
        state=state,
        addresses=addresses or (f"{name}.lan:7070",),
        devices=devices or (device(budget_bytes=mib * MIB, gb_per_s=gb_per_s),),
        models=models,
        loaded=loaded,
        held_by=held_by,
        models_folder="/models",
        all_reduce_us=all_reduce_us,
    )


def problem(
    spec: ModelSpec,
    request: PlanRequest,
    nodes: Sequence[NodeFacts],
    *,
    digest: str = "digest",
    notes: Sequence[str] = (),
) -> Problem:
    """What is to be planned: a model called "m", on `nodes`."""
    return Problem.of(model_card(spec, digest=digest), request, nodes, notes)


def layers_by_node(plan: Plan) -> list[tuple[str, int, int]]:
    """What a plan says, in short: node, first and last layer."""
    return [(stage.node, stage.spec.first_layer, stage.spec.last_layer) for stage in plan.stages]
