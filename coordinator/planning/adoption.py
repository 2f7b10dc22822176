"""The plan that is loaded already, if there is one: a model kept in memory after its last coordinator left.

Stages are adopted only as they are; whatever would have to be loaded anew is the planner's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.planning.contexts import context_choices
from coordinator.planning.footprint import PAGE_TOKENS, Footprint
from coordinator.planning.manual import resolve_layers
from coordinator.planning.stages import stage_plan
from layerline.facts import NodeFacts
from layerline.models.spec import ModelSpec
from layerline.plan import MAX_DEVICES, PipelinePlan, Plan, PlanRequest, StageSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class _Held:
    """A stage that a node has in memory."""

    node: NodeFacts
    spec: StageSpec


def adopt(spec: ModelSpec, digest: str, request: PlanRequest, nodes: Sequence[NodeFacts]) -> Plan | None:
    """The plan that the loaded stages make up, if they are the whole model and do for `request`.

    Raises UsageError or PlanInvalidError if the request itself cannot be.
    """
    choices = context_choices(spec, request.context_tokens)
    held = _held_stages(spec, digest, request, nodes)
    for pages in sorted({stage.spec.pages for stage in held}, reverse=True):
        fitting = (tokens for tokens in choices if Footprint.asked(spec, request, tokens).pages <= pages)
        context_tokens = next(fitting, None)
        if context_tokens is None:
            continue
        chain = _chain(spec.layers, [stage for stage in held if stage.spec.pages == pages])
        if chain and request.takes([len(stage.spec.devices) for stage in chain]):
            return _plan(spec, digest, request, context_tokens, chain)
    return None


def _held_stages(spec: ModelSpec, digest: str, request: PlanRequest, nodes: Sequence[NodeFacts]) -> list[_Held]:
    """The loaded stages of this model that could be part of a plan made today, in order of nodes."""
    ordered = sorted(nodes, key=lambda node: (node.name, node.node_id))
    wanted = _layers_by_node(spec, request, ordered)
    max_rows = Footprint.asked(spec, request, 1).max_rows
    return [
        _Held(node=node, spec=loaded.spec)
        for node in ordered
        if node.state == "ready" and len(node.loaded) == 1
        for loaded in node.loaded
        if (loaded.spec.digest, loaded.spec.dtype) == (digest, request.dtype)
        and loaded.spec.held_kv_dtype == request.held_kv_dtype
        and _spans(loaded.spec, node, request)
        and (loaded.spec.page_tokens, loaded.spec.max_rows) == (PAGE_TOKENS, max_rows)
        and (not wanted or wanted.get(node.node_id) == (loaded.spec.first_layer, loaded.spec.last_layer))
    ]


def _spans(spec: StageSpec, node: NodeFacts, request: PlanRequest) -> bool:
    """Whether a loaded stage spans devices that `node` still has, and no more of them than stages are to span."""
    present = {device.device for device in node.devices}
    return present.issuperset(spec.devices) and len(spec.devices) <= (request.tensor_parallel or MAX_DEVICES)


def _layers_by_node(spec: ModelSpec, request: PlanRequest, nodes: Sequence[NodeFacts]) -> dict[str, tuple[int, int]]:
    owners = resolve_layers(spec, request.layers, nodes) if request.layers else ()
    return {
        owner.node_id: (stage.first_layer, stage.last_layer)
        for owner, stage in zip(owners, request.layers, strict=True)
    }


def _chain(layers: int, held: Sequence[_Held]) -> list[_Held]:
    """Stages that follow each other from the model's first layer to its last, or nothing."""
    chains: dict[int, list[_Held]] = {layers: []}
    for stage in sorted(held, key=lambda stage: stage.spec.first_layer, reverse=True):
        rest = chains.get(stage.spec.last_layer + 1)
        if rest is not None and stage.spec.first_layer not in chains:
            chains[stage.spec.first_layer] = [stage, *rest]
    return chains.get(0, [])


def _plan(spec: ModelSpec, digest: str, request: PlanRequest, context_tokens: int, chain: Sequence[_Held]) -> Plan:
    names = ", ".join(stage.node.name for stage in chain)
    stages = (stage_plan(spec, stage.node, stage.spec, "loaded already") for stage in chain)
    return Plan(
        model=chain[0].spec.model,
        digest=digest,
        dtype=request.dtype,
        kv_dtype=request.held_kv_dtype,
        layers=spec.layers,
        context_tokens=context_tokens,
        pipelines=(PipelinePlan(stages=tuple(stages)),),
        notes=(f"The model is loaded already on {names}, so nothing is moved.",),
    )
