"""The plan that is loaded already, if there is one: a model kept in memory after its last coordinator left.

Stages are adopted only as they are; whatever would have to be loaded anew is the planner's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.planning.footprint import PAGE_TOKENS
from coordinator.planning.manual import resolve_layers
from coordinator.planning.problem import Problem
from coordinator.planning.stages import plan_of_stages, stage_plan
from coordinator.planning.ways import Way
from layerline.facts import NodeFacts
from layerline.plan import Plan, StageSpec
from layerline.sharing import MAX_DEVICES


@dataclass(frozen=True, kw_only=True, slots=True)
class _Held:
    """A stage that a node has in memory."""

    node: NodeFacts
    spec: StageSpec


def adopt(problem: Problem) -> Plan | None:
    """The plan that the loaded stages make up, if they are the whole model and do for the request.

    Raises UsageError or PlanInvalidError if the request itself cannot be.
    """
    choices, held = problem.contexts, _held_stages(problem)
    for pages, long_context in sorted({(stage.spec.pages, stage.spec.long_context) for stage in held}, reverse=True):
        fitting = [tokens for tokens in choices if problem.pages(tokens) <= pages]
        context_tokens = next((tokens for tokens in fitting if problem.spec.is_long(tokens) == long_context), None)
        if context_tokens is None:
            continue
        like = [stage for stage in held if (stage.spec.pages, stage.spec.long_context) == (pages, long_context)]
        chain = _chain(problem.spec.layers, like)
        specs = [stage.spec for stage in chain]
        degrees = [len(spec.devices) for spec in specs]
        if chain and problem.request.takes(degrees) and problem.request.shares([spec.sharing for spec in specs]):
            stages = [stage_plan(problem, stage.node, stage.spec, "loaded already") for stage in chain]
            names = ", ".join(stage.node for stage in stages)
            note = f"The model is loaded already on {names}, so nothing is moved."
            return plan_of_stages(problem, context_tokens, stages, (note,))
    return None


def _held_stages(problem: Problem) -> list[_Held]:
    """The loaded stages of this model that could be part of a plan made today, in order of nodes."""
    request, wanted = problem.request, _layers_by_node(problem)
    return [
        _Held(node=node, spec=loaded.spec)
        for node in problem.nodes
        if node.state == "ready" and len(node.loaded) == 1
        for loaded in node.loaded
        if (loaded.spec.digest, loaded.spec.dtype) == (problem.card.digest, request.dtype)
        and loaded.spec.held_kv_dtype == request.kv_dtype
        and _computes_as_planned(problem, loaded.spec, node)
        and _spans(loaded.spec, node, request.tensor_parallel)
        and (loaded.spec.page_tokens, loaded.spec.max_rows) == (PAGE_TOKENS, problem.max_rows)
        and (not wanted or wanted.get(node.node_id) == (loaded.spec.first_layer, loaded.spec.last_layer))
    ]


def _computes_as_planned(problem: Problem, spec: StageSpec, node: NodeFacts) -> bool:
    """Whether the devices of a loaded stage would compute in its way today."""
    devices = [device for device in node.devices if device.device in spec.devices]
    return all(problem.way_of(device) == Way(spec.held_weights, spec.precision) for device in devices)


def _spans(spec: StageSpec, node: NodeFacts, asked: int) -> bool:
    """Whether a loaded stage spans devices that `node` still has, and no more of them than are asked for."""
    present = {device.device for device in node.devices} | {""}
    return present.issuperset((*spec.devices, spec.expert_device)) and len(spec.devices) <= (asked or MAX_DEVICES)


def _layers_by_node(problem: Problem) -> dict[str, tuple[int, int]]:
    stages = problem.request.layers
    owners = resolve_layers(problem) if stages else ()
    return {owner.node_id: (stage.first_layer, stage.last_layer) for owner, stage in zip(owners, stages, strict=True)}


def _chain(layers: int, held: Sequence[_Held]) -> list[_Held]:
    """Stages that follow each other from the model's first layer to its last, or nothing."""
    chains: dict[int, list[_Held]] = {layers: []}
    for stage in sorted(held, key=lambda stage: stage.spec.first_layer, reverse=True):
        rest = chains.get(stage.spec.last_layer + 1)
        if rest is not None and stage.spec.first_layer not in chains:
            chains[stage.spec.first_layer] = [stage, *rest]
    return chains.get(0, [])
