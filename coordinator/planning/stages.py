"""Planned stages, made in one place whichever way they were decided on: by the planner, by hand or by adoption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.planning.footprint import PAGE_TOKENS, Ends, Footprint, ends_of
from coordinator.planning.hand import Hand
from coordinator.planning.room import pages_note, useful_pages
from layerline.facts import NodeFacts
from layerline.models.shares import rank_shares
from layerline.models.spec import ModelSpec
from layerline.plan import PipelinePlan, Plan, PlanRequest, StagePlan, StageSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """The layers that one hand takes, and why."""

    hand: Hand
    first_layer: int
    last_layer: int
    why: str

    @property
    def layers(self) -> int:
        """How many layers these are."""
        return self.last_layer - self.first_layer + 1

    def most_pages(self, footprint: Footprint) -> int:
        """The most KV pages that there is room for."""
        return self.hand.most_pages(footprint, self.layers, self.ends(footprint.spec))

    def ends(self, spec: ModelSpec) -> Ends:
        """The ends of the model that these layers have."""
        return ends_of(spec, self.first_layer, self.last_layer)


def assembled(
    spec: ModelSpec,
    card_name: str,
    digest: str,
    request: PlanRequest,
    context_tokens: int,
    assignments: Sequence[Assignment],
    notes: Sequence[str],
) -> Plan:
    """The plan in which each hand takes its assignment, with as many KV pages as are of use and fit everywhere."""
    base = Footprint.asked(spec, request, context_tokens)
    tightest = min(assignments, key=lambda assignment: assignment.most_pages(base))
    pages = min(useful_pages(base), tightest.most_pages(base))
    stages = [
        stage_plan(
            spec,
            assignment.hand.node,
            StageSpec(
                model=card_name,
                digest=digest,
                first_layer=assignment.first_layer,
                last_layer=assignment.last_layer,
                dtype=request.dtype,
                devices=assignment.hand.devices,
                shares=assignment.hand.weights,
                pages=pages,
                page_tokens=PAGE_TOKENS,
                max_rows=base.max_rows,
                kv_dtype=request.held_kv_dtype,
            ),
            assignment.why,
        )
        for assignment in assignments
    ]
    return Plan(
        model=card_name,
        digest=digest,
        dtype=request.dtype,
        kv_dtype=request.held_kv_dtype,
        layers=spec.layers,
        context_tokens=context_tokens,
        pipelines=(PipelinePlan(stages=tuple(stages)),),
        notes=(*notes, pages_note(base, pages, tightest.hand.node.name)),
    )


def stage_plan(model: ModelSpec, node: NodeFacts, spec: StageSpec, why: str) -> StagePlan:
    """The stage `spec` on `node`, with the memory it takes and what the node's devices for it offer, all together."""
    footprint = Footprint(spec=model, dtype=spec.dtype, kv_dtype=spec.held_kv_dtype, pages=spec.pages)
    ends, layers = ends_of(model, spec.first_layer, spec.last_layer), spec.last_layer - spec.first_layer + 1
    ranks = [footprint.of_rank(share) for share in rank_shares(model, len(spec.devices), spec.shares)]
    return StagePlan(
        node_id=node.node_id,
        node=node.name,
        spec=spec,
        weights_bytes=sum(rank.weights_bytes(layers, ends) for rank in ranks),
        kv_bytes=sum(rank.kv_bytes(layers) for rank in ranks),
        workspace_bytes=sum(rank.workspace_bytes(ends) for rank in ranks),
        budget_bytes=sum(device.budget_bytes for device in node.devices if device.device in spec.devices),
        why=why,
    )
