"""A plan by hand, from `--layers a=0-14,b=15-29`: checked as strictly as the planner's own are made.

Nothing is put right in silence; each refusal names the layers and nodes it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise

from coordinator.planning.contexts import context_choices
from coordinator.planning.crew import Crew
from coordinator.planning.degrees import unevenness_notes, with_degrees
from coordinator.planning.explanations import context_notes
from coordinator.planning.footprint import Footprint, ends_of
from coordinator.planning.grouping import check_degree
from coordinator.planning.hand import Hand
from coordinator.planning.refusals import REMEDY
from coordinator.planning.stages import Assignment, assembled
from layerline.errors import PlanDoesNotFitError, PlanInvalidError
from layerline.facts import NodeFacts
from layerline.layers_option import format_layers
from layerline.models.spec import ModelSpec
from layerline.plan import ManualStage, Plan, PlanRequest
from layerline.units import format_bytes

WHY = "as --layers says"


def plan_by_hand(
    spec: ModelSpec, card_name: str, digest: str, request: PlanRequest, nodes: Sequence[NodeFacts]
) -> Plan:
    """The plan that `request.layers` describes; PlanInvalidError or PlanDoesNotFitError if it cannot be."""
    crew = Crew.of(spec, request, nodes)
    owners = resolve_layers(spec, request.layers, crew.nodes)
    check_degree(spec, request.tensor_parallel, owners)
    choices = context_choices(spec, request.context_tokens)
    for context_tokens in choices:
        footprint = Footprint.asked(spec, request, context_tokens)
        assignments = _assignments(footprint, crew, request.layers, owners)
        if assignments:
            assignments = with_degrees(crew, footprint, assignments)
            notes = [
                "The layers are as --layers says.",
                *unevenness_notes(footprint, assignments),
                *context_notes(context_tokens, choices[0]),
            ]
            return assembled(spec, card_name, digest, request, context_tokens, assignments, notes)
    raise _does_not_fit(footprint, crew, request.layers, owners, context_tokens)


def resolve_layers(spec: ModelSpec, stages: Sequence[ManualStage], nodes: Sequence[NodeFacts]) -> tuple[NodeFacts, ...]:
    """The node of each stage; PlanInvalidError unless the stages cover the model in order, each on its own node."""
    owners = tuple(_owner(stage, nodes) for stage in stages)
    for stage, owner in zip(stages, owners, strict=True):
        if owner.state != "ready":
            raise PlanInvalidError(
                f"--layers gives layers {_span(stage)} to {stage.node!r}, but {owner.name!r} is {owner.state}.",
                node=owner.name,
                remedy="Choose a node that is ready; see `layerline nodes`.",
            )
    _check_ranges(spec, stages)
    _check_order(stages)
    _check_cover(spec, stages)
    for index, owner in enumerate(owners):
        if owner in owners[:index]:
            both = f"{_span(stages[owners.index(owner)])} and {_span(stages[index])}"
            raise PlanInvalidError(
                f"--layers gives {owner.name} two groups, {both}.",
                node=owner.name,
                remedy="Give each node one group of layers that follow each other.",
            )
    return owners


def _owner(stage: ManualStage, nodes: Sequence[NodeFacts]) -> NodeFacts:
    by_id = [node for node in nodes if node.node_id == stage.node]
    by_name = [node for node in nodes if node.name == stage.node]
    if by_id or len(by_name) == 1:
        return (by_id or by_name)[0]
    if by_name:
        ids = ", ".join(node.node_id for node in by_name)
        raise PlanInvalidError(
            f"--layers gives layers {_span(stage)} to {stage.node!r}, which {len(by_name)} nodes are called.",
            remedy=f"Name the node by its id, one of {ids}.",
        )
    raise PlanInvalidError(
        f"--layers gives layers {_span(stage)} to {stage.node!r}, but no node that can be used is called so.",
        remedy=_unknown_remedy(stage.node, [node.name for node in nodes]),
    )


def _unknown_remedy(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"These can be used: {', '.join(known) or 'none'}; see `layerline nodes`."


def _check_ranges(spec: ModelSpec, stages: Sequence[ManualStage]) -> None:
    for stage in stages:
        if not 0 <= stage.first_layer <= stage.last_layer:
            raise PlanInvalidError(f"--layers gives {stage.node} {_span(stage)}, which are no layers.")
        if stage.last_layer >= spec.layers:
            raise PlanInvalidError(
                f"--layers gives {stage.node} layers {_span(stage)}, but the model's last layer is {spec.layers - 1}.",
                remedy=f"Give out layers 0 to {spec.layers - 1}.",
            )


def _check_order(stages: Sequence[ManualStage]) -> None:
    ordered = sorted(stages, key=lambda stage: (stage.first_layer, stage.last_layer))
    if ordered != list(stages):
        raise PlanInvalidError(
            "--layers lists the stages out of order.", remedy=f"Write --layers {format_layers(ordered)}."
        )


def _check_cover(spec: ModelSpec, stages: Sequence[ManualStage]) -> None:
    """Gaps and overlaps; the stages are in order."""
    for before, after in pairwise(stages):
        if after.first_layer <= before.last_layer:
            shared = _layers(after.first_layer, min(before.last_layer, after.last_layer))
            raise PlanInvalidError(
                f"--layers gives {shared} to both {before.node} and {after.node}.",
                remedy="Give each layer to one node.",
            )
    next_layer = 0
    for stage in stages:
        _require_no_gap(next_layer, stage.first_layer - 1)
        next_layer = stage.last_layer + 1
    _require_no_gap(next_layer, spec.layers - 1)


def _require_no_gap(first_layer: int, last_layer: int) -> None:
    if first_layer <= last_layer:
        raise PlanInvalidError(
            f"--layers gives {_layers(first_layer, last_layer)} to no node.", remedy="Give every layer to a node."
        )


def _assignments(
    footprint: Footprint, crew: Crew, stages: Sequence[ManualStage], owners: Sequence[NodeFacts]
) -> tuple[Assignment, ...]:
    """Each stage on the fastest hand of its node that holds it, or nothing if one does not fit."""
    hands = [_hand(footprint, crew, stage, owner) for stage, owner in zip(stages, owners, strict=True)]
    return tuple(
        Assignment(hand=hand, first_layer=stage.first_layer, last_layer=stage.last_layer, why=WHY)
        for hand, stage in zip(hands, stages, strict=True)
        if hand is not None and None not in hands
    )


def _hand(footprint: Footprint, crew: Crew, stage: ManualStage, owner: NodeFacts) -> Hand | None:
    ends = ends_of(footprint.spec, stage.first_layer, stage.last_layer)
    return crew.hand_for(owner, footprint, stage.last_layer - stage.first_layer + 1, ends)


def _does_not_fit(
    footprint: Footprint, crew: Crew, stages: Sequence[ManualStage], owners: Sequence[NodeFacts], context_tokens: int
) -> PlanDoesNotFitError:
    needs = [
        (_needed_bytes(footprint, stage), crew.offered_bytes(owner), stage, owner)
        for stage, owner in zip(stages, owners, strict=True)
    ]
    short = [
        f"{_layers(stage.first_layer, stage.last_layer)} need {format_bytes(needed)} and {owner.name} offers"
        f" {format_bytes(offered)}"
        for needed, offered, stage, owner in needs
        if _hand(footprint, crew, stage, owner) is None
    ]
    total, available = sum(need[0] for need in needs), sum(need[1] for need in needs)
    return PlanDoesNotFitError(
        f"The layers given by hand do not fit with a context of {context_tokens} tokens: {'; '.join(short)}"
        f" (in all {format_bytes(total)} needed, {format_bytes(available)} available).",
        remedy=f"Give that node fewer layers, or leave out --layers. {REMEDY}",
    )


def _needed_bytes(footprint: Footprint, stage: ManualStage) -> int:
    ends = ends_of(footprint.spec, stage.first_layer, stage.last_layer)
    return footprint.needed_bytes(stage.last_layer - stage.first_layer + 1, ends)


def _span(stage: ManualStage) -> str:
    return f"{stage.first_layer}-{stage.last_layer}"


def _layers(first_layer: int, last_layer: int) -> str:
    return f"layer {first_layer}" if first_layer == last_layer else f"layers {first_layer}-{last_layer}"
