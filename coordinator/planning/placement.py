"""Who holds which layers, decided from what the nodes offer and how fast they were measured to be.

One node if the model fits one; else the split that `split` finds. Pure: knows no connections and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from coordinator.planning.candidates import Candidates, check_degree, check_experts
from coordinator.planning.decision import (
    Assignment,
    Decision,
    FitsOne,
    HoldsAll,
    LeftOut,
    LeftOutReason,
    Misfit,
    NoDevice,
    NotReady,
    NotWorthTheHop,
    Part,
    TooFewDevices,
    TooSlow,
    TooSmall,
)
from coordinator.planning.degrees import with_degree_reasons
from coordinator.planning.problem import Problem
from coordinator.planning.split import HOP_S, Split, best_split
from layerline.facts import NodeFacts


def place(problem: Problem) -> Decision | Misfit:
    """Every layer on a device group, with the longest context that fits; or why that cannot be.

    Raises PlanInvalidError or UsageError if the request itself cannot be.
    """
    check_degree(problem, problem.nodes)
    everyone = Candidates.of(problem)
    check_experts(everyone)
    fits_otherwise = False
    for context_tokens, candidates in product(problem.contexts, everyone.tried):
        found = _placed(candidates, context_tokens)
        if found and found.does_as_asked:
            return found
        fits_otherwise = fits_otherwise or found is not None
    context_tokens = problem.contexts[-1]
    pages = problem.pages(context_tokens)
    return Misfit(
        candidates=everyone.as_asked() if fits_otherwise else everyone,
        context_tokens=context_tokens,
        sequence_pages=pages,
        left_out=tuple(_useless(everyone, pages)),
        fits_otherwise=fits_otherwise,
    )


def _placed(candidates: Candidates, context_tokens: int) -> Decision | None:
    pages = candidates.problem.pages(context_tokens)
    split, assignments = None, _alone(candidates, pages)
    if not assignments:
        split = best_split(candidates, pages)
        assignments = _apart(candidates, split) if split else ()
    if not assignments:
        return None
    return Decision(
        candidates=candidates,
        context_tokens=context_tokens,
        sequence_pages=pages,
        assignments=with_degree_reasons(candidates, pages, assignments),
        split=split,
        left_out=tuple(_left_out(candidates, pages, assignments)),
    )


def _alone(candidates: Candidates, pages: int) -> tuple[Assignment, ...]:
    group = candidates.group_for_all(pages)
    if group is None:
        return ()
    is_only = sum(1 for own in candidates.groups if own) == 1
    layers = candidates.problem.layers
    return (Assignment(group=group, layers=layers, reason=HoldsAll(is_only)),)


def _apart(candidates: Candidates, split: Split) -> tuple[Assignment, ...]:
    stages_s = split.tick_s * sum(each.ticks for each in split.ranges)
    return tuple(
        Assignment(
            group=candidates.groups[each.offer.node][each.offer.group],
            layers=range(each.start, each.stop),
            reason=Part(split.tick_s * each.ticks, stages_s, each.offer.most_layers(each.ends)),
        )
        for each in split.ranges
    )


def _left_out(candidates: Candidates, pages: int, assignments: Sequence[Assignment]) -> list[LeftOut]:
    """Each node that has no stage, and why."""
    used_ids = {assignment.group.node.node_id for assignment in assignments}
    useless = {each.node.node_id: each for each in _useless(candidates, pages)}
    return [
        useless.get(node.node_id) or LeftOut(node=node, reason=_why_not_used(candidates, node, assignments))
        for node in candidates.problem.nodes
        if node.node_id not in used_ids
    ]


def _useless(candidates: Candidates, pages: int) -> list[LeftOut]:
    """Each node that cannot have a stage, whatever the others have."""
    found = ((node, _why_useless(candidates, node, pages)) for node in candidates.problem.nodes)
    return [LeftOut(node=node, reason=reason) for node, reason in found if reason]


def _why_useless(candidates: Candidates, node: NodeFacts, pages: int) -> LeftOutReason | None:
    if node.state != "ready":
        return NotReady(node.state)
    if not node.devices:
        return NoDevice()
    if not candidates.groups_of(node):
        return TooFewDevices(candidates.problem.request.tensor_parallel)
    if not candidates.helps(node, pages):
        return TooSmall(candidates.offered_bytes(node), candidates.least_bytes(node, pages))
    return None


def _why_not_used(candidates: Candidates, node: NodeFacts, assignments: Sequence[Assignment]) -> LeftOutReason:
    """Why a node that could have a stage has none: the search looked at it and found the others better."""
    if len(assignments) == 1:
        return FitsOne(assignments[0].group.node.name)
    fastest_s = candidates.groups_of(node)[0].mean_layer_s
    slowest_used_s = max(assignment.group.mean_layer_s for assignment in assignments)
    return TooSlow(fastest_s, slowest_used_s) if fastest_s > slowest_used_s else NotWorthTheHop(HOP_S)
