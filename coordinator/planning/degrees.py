"""Why a stage spans as many devices of its node as it does, and why these share experts as they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coordinator.planning.candidates import Candidates
from coordinator.planning.decision import (
    AllReduceNotMeasured,
    AsAskedFor,
    Assignment,
    DegreeReason,
    Faster,
    Roomier,
    TooLargeForOne,
)
from coordinator.planning.device_group import DeviceGroup
from coordinator.planning.experts_reason import experts_reason
from coordinator.planning.footprint import PAGE_TOKENS


def with_degree_reasons(
    candidates: Candidates, pages: int, assignments: Sequence[Assignment]
) -> tuple[Assignment, ...]:
    """The assignments with these reasons, where there are `pages` KV pages at least."""
    return tuple(
        replace(
            each,
            degree_reason=_reason(candidates, pages, each),
            experts_reason=experts_reason(candidates, pages, each),
        )
        for each in assignments
    )


def _reason(candidates: Candidates, pages: int, assignment: Assignment) -> DegreeReason | None:
    """Why the stage has one device, or several; None where its node has no choice."""
    group, layers = assignment.group, assignment.layers
    asked = candidates.problem.request.tensor_parallel
    if asked:
        return AsAskedFor() if len(group.ranks) == asked else None
    own = sorted(candidates.groups_of(group.node), key=lambda each: each.time_s(layers))
    if len(group.ranks) > 1:
        alone = [each for each in own if len(each.ranks) == 1]
        return _reason_for_several(assignment, pages, alone) if alone else None
    several = next((each for each in own if len(each.ranks) > 1 and each.holds(layers, pages)), None)
    return _comparison(group, several, layers) if several else None


def _reason_for_several(assignment: Assignment, pages: int, alone: Sequence[DeviceGroup]) -> DegreeReason:
    """Why the stage has several devices and not one of `alone`, which are in order of speed."""
    group, layers = assignment.group, assignment.layers
    fastest = next((each for each in alone if each.holds(layers, pages)), None)
    if fastest is None:
        largest = max(alone, key=lambda each: each.budget_bytes)
        return TooLargeForOne(largest.needed_bytes(layers, pages), largest.budget_bytes)
    if group.time_s(layers) >= fastest.time_s(layers):
        return Roomier(PAGE_TOKENS * group.most_pages(layers), PAGE_TOKENS * fastest.most_pages(layers))
    return _comparison(fastest, group, layers)


def _comparison(alone: DeviceGroup, several: DeviceGroup, layers: range) -> DegreeReason:
    if not several.is_measured:
        return AllReduceNotMeasured(len(several.ranks))
    return Faster(alone.time_s(layers), len(several.ranks), several.time_s(layers), several.all_reduce_s)
