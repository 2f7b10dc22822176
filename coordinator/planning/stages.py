"""Planned stages and the plan of them, made in one place whichever way they were decided on."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.planning.decision import Assignment, Decision
from coordinator.planning.footprint import PAGE_TOKENS
from coordinator.planning.problem import Problem
from coordinator.planning.room import useful_pages
from coordinator.planning.ways import Way
from layerline.facts import NodeFacts
from layerline.plan import PipelinePlan, Plan, StagePlan, StageSpec
from layerline.sharing import MAX_REPEATS

REPEATED = 0.25  # of a rank's experts, that it is of use to have in addition


def tightest_of(decision: Decision) -> Assignment:
    """The assignment that has room for the fewest KV pages, which bounds those of all."""
    return min(decision.assignments, key=lambda assignment: assignment.most_pages)


def pages_of(decision: Decision) -> int:
    """The KV pages of each stage: as many as are of use and fit everywhere."""
    return min(useful_pages(decision.sequence_pages), tightest_of(decision).most_pages)


def stage_specs(decision: Decision) -> list[StageSpec]:
    """What each assignment is to load."""
    problem, pages = decision.problem, pages_of(decision)
    long_context = problem.spec.is_long(decision.context_tokens)
    return [
        StageSpec(
            model=problem.card.name,
            digest=problem.card.digest,
            first_layer=assignment.layers.start,
            last_layer=assignment.layers.stop - 1,
            dtype=problem.request.dtype,
            devices=assignment.group.devices,
            proportions=assignment.group.sharing.proportions,
            experts=assignment.group.sharing.experts,
            attention_devices=assignment.group.sharing.attention_devices,
            repeats=_repeats(assignment, pages),
            expert_device=assignment.group.beside.device.device if assignment.group.beside else "",
            device_experts=assignment.group.sharing.device_experts,
            pages=pages,
            page_tokens=PAGE_TOKENS,
            max_rows=problem.max_rows,
            kv_dtype=problem.request.kv_dtype,
            weights=assignment.group.way.weights,
            precision=assignment.group.way.precision,
            long_context=long_context,
        )
        for assignment in decision.assignments
    ]


def _repeats(assignment: Assignment, pages: int) -> int:
    """For how many more experts of each layer every rank has room, as far as they are of use."""
    group, layers = assignment.group, assignment.layers
    if not group.sharing.spreads or group.beside is not None:
        return 0
    experts = max(kind.feed_forward.expert_count for kind in group.ranks[0].footprint.sizes.model.kinds)
    most = min(MAX_REPEATS, max(1, round(REPEATED * experts / len(group.ranks))))
    left = (rank.footprint.repeats(-rank.missing_bytes(layers, pages), layers) for rank in group.ranks)
    return min(most, *left)


def stage_plan(problem: Problem, node: NodeFacts, spec: StageSpec, why: str) -> StagePlan:
    """The stage `spec` on `node`, with the memory it takes and what the node's devices for it offer, all together."""
    layers = range(spec.first_layer, spec.last_layer + 1)
    way = Way(spec.held_weights, spec.precision)
    parts = problem.footprint_of(way).sizes.parts(spec.sharing)
    ranks = [problem.footprint_of(way, part) for part in parts]
    return StagePlan(
        node_id=node.node_id,
        node=node.name,
        spec=spec,
        weights_bytes=sum(rank.weights_bytes(layers) for rank in ranks),
        kv_bytes=sum(rank.kv_bytes(layers, spec.pages) for rank in ranks),
        workspace_bytes=sum(rank.workspace_bytes(rank.ends(layers)) for rank in ranks),
        budget_bytes=sum(device.budget_bytes for device in node.devices if device.device in spec.devices),
        beside_bytes=sum(rank.beside_bytes(layers) for rank in ranks),
        why=why,
        has_experts=any(problem.spec.layer(layer).feed_forward.experts for layer in layers),
    )


def plan_of_stages(problem: Problem, context_tokens: int, stages: Sequence[StagePlan], notes: Sequence[str]) -> Plan:
    """The plan of one pipeline of these stages; its weights are as stored if some of them hold others than the rest."""
    weights = {stage.spec.held_weights for stage in stages}
    return Plan(
        model=problem.card.name,
        digest=problem.card.digest,
        dtype=problem.request.dtype,
        kv_dtype=problem.request.kv_dtype,
        weights=weights.pop() if len(weights) == 1 else "stored",
        precision=max(stage.spec.precision for stage in stages),  # of those that have one it is the same
        layers=problem.spec.layers,
        context_tokens=context_tokens,
        pipelines=(PipelinePlan(stages=tuple(stages)),),
        notes=(*notes, *problem.notes),
    )
