"""A plan by hand, from `--layers a=0-14,b=15-29`: checked as strictly as the planner's own are made.

Nothing is put right in silence; each refusal names the layers and nodes it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise, product

from coordinator.planning.candidates import Candidates, check_degree, check_experts
from coordinator.planning.decision import Assignment, ByHand, Decision, Misfit
from coordinator.planning.degrees import with_degree_reasons
from coordinator.planning.problem import Problem
from layerline.errors import PlanInvalidError
from layerline.facts import NodeFacts
from layerline.layers_option import format_layers
from layerline.models.spec import ModelSpec
from layerline.plan_request import ManualStage


def place_by_hand(problem: Problem) -> Decision | Misfit:
    """The layers where `--layers` gives them; PlanInvalidError if that cannot be, whatever the memory."""
    owners = resolve_layers(problem)
    check_degree(problem, owners)
    candidates = Candidates.of(problem)
    check_experts(candidates)
    fits_otherwise = False
    for context_tokens, tried in product(problem.contexts, candidates.tried):
        pages = problem.pages(context_tokens)
        assignments = _assignments(tried, owners, pages)
        if not assignments:
            continue
        found = Decision(
            candidates=tried,
            context_tokens=context_tokens,
            sequence_pages=pages,
            assignments=with_degree_reasons(tried, pages, assignments),
        )
        if found.shares_as_asked:
            return found
        fits_otherwise = True
    return Misfit(
        candidates=candidates.as_asked() if fits_otherwise else candidates,
        context_tokens=context_tokens,
        sequence_pages=pages,
        owners=owners,
        fits_otherwise=fits_otherwise,
    )


def resolve_layers(problem: Problem) -> tuple[NodeFacts, ...]:
    """The node of each stage; PlanInvalidError unless the stages cover the model in order, each on its own node."""
    stages = problem.request.layers
    owners = tuple(_owner(stage, problem.nodes) for stage in stages)
    for stage, owner in zip(stages, owners, strict=True):
        if owner.state != "ready":
            raise PlanInvalidError(
                f"--layers gives layers {_span(stage)} to {stage.node!r}, but {owner.name!r} is {owner.state}.",
                node=owner.name,
                remedy="Choose a node that is ready; see `layerline nodes`.",
            )
    _check_ranges(problem.spec, stages)
    _check_order(stages)
    _check_cover(problem.spec, stages)
    for index, owner in enumerate(owners):
        if owner in owners[:index]:
            both = f"{_span(stages[owners.index(owner)])} and {_span(stages[index])}"
            raise PlanInvalidError(
                f"--layers gives {owner.name} two groups, {both}.",
                node=owner.name,
                remedy="Give each node one group of layers that follow each other.",
            )
    return owners


def _assignments(candidates: Candidates, owners: Sequence[NodeFacts], pages: int) -> tuple[Assignment, ...]:
    """Each stage on the fastest group of its node that holds it, or nothing if one does not fit."""
    assignments = []
    for stage, owner in zip(candidates.problem.request.layers, owners, strict=True):
        layers = range(stage.first_layer, stage.last_layer + 1)
        group = candidates.group_for(owner, layers, pages)
        if group is None:
            return ()
        assignments.append(Assignment(group=group, layers=layers, reason=ByHand()))
    return tuple(assignments)


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
            raise PlanInvalidError(f"--layers: {_span(stage)} is not a range of layers.")
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


def _span(stage: ManualStage) -> str:
    return f"{stage.first_layer}-{stage.last_layer}"


def _layers(first_layer: int, last_layer: int) -> str:
    return f"layer {first_layer}" if first_layer == last_layer else f"layers {first_layer}-{last_layer}"
