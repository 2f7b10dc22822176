"""Who holds which layers, decided from what the nodes offer and how fast they were measured to be.

One node if the model fits one; else the split that `splitting` finds. The plan says why, in numbers.
Pure: knows no connections and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from coordinator.planning.contexts import context_choices
from coordinator.planning.crew import Crew
from coordinator.planning.degrees import unevenness_notes, with_degrees
from coordinator.planning.explanations import (
    alone_why,
    context_notes,
    left_out_notes,
    share_why,
    split_notes,
    whole_notes,
)
from coordinator.planning.footprint import Footprint
from coordinator.planning.grouping import check_degree
from coordinator.planning.manual import plan_by_hand
from coordinator.planning.refusals import does_not_fit, not_so_split
from coordinator.planning.splitting import Split, best_split
from coordinator.planning.stages import Assignment, assembled
from layerline.facts import NodeFacts
from layerline.models.spec import ModelSpec
from layerline.plan import Plan, PlanRequest

HOP_S = 0.001  # from one stage to the next on a LAN, both ends' work included


def make_plan(spec: ModelSpec, card_name: str, digest: str, request: PlanRequest, nodes: Sequence[NodeFacts]) -> Plan:
    """The plan for the model on `nodes`, as asked for in `request`; by hand if it gives layers.

    Raises PlanDoesNotFitError, PlanInvalidError or UsageError.
    """
    if request.layers:
        return plan_by_hand(spec, card_name, digest, request, nodes)
    check_degree(spec, request.tensor_parallel, nodes)
    crew = Crew.of(spec, request, nodes)
    crews = (crew.as_asked(), crew) if crew.asked else (crew,)
    choices = context_choices(spec, request.context_tokens)
    fits_otherwise = False
    for context_tokens, hands in product(choices, crews):
        footprint = Footprint.asked(spec, request, context_tokens)
        placement = _placed(footprint, hands)
        if placement is not None and not request.takes([len(each.hand.ranks) for each in placement.assignments]):
            fits_otherwise = True
        elif placement is not None:
            assignments = with_degrees(hands, footprint, placement.assignments)
            notes = [
                *placement.notes,
                *unevenness_notes(footprint, assignments),
                *left_out_notes(footprint, hands, assignments, HOP_S),
                *context_notes(context_tokens, choices[0]),
            ]
            return assembled(spec, card_name, digest, request, context_tokens, assignments, notes)
    if fits_otherwise:
        raise not_so_split(footprint, request, crew.as_asked())
    raise does_not_fit(footprint, request, context_tokens, crew)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Placement:
    """Every layer on a hand, and why so."""

    assignments: tuple[Assignment, ...]
    notes: list[str]


def _placed(footprint: Footprint, crew: Crew) -> _Placement | None:
    return _placed_alone(footprint, crew) or _placed_apart(footprint, crew)


def _placed_alone(footprint: Footprint, crew: Crew) -> _Placement | None:
    hand = crew.hand_for_all(footprint)
    if hand is None:
        return None
    whole = Assignment(hand=hand, first_layer=0, last_layer=footprint.spec.layers - 1, why=alone_why(crew))
    return _Placement(assignments=(whole,), notes=whole_notes(footprint, hand))


def _placed_apart(footprint: Footprint, crew: Crew) -> _Placement | None:
    split = best_split(footprint, crew, HOP_S)
    if split is None:
        return None
    return _Placement(assignments=_assignments(crew, split), notes=split_notes(footprint, crew, split))


def _assignments(crew: Crew, split: Split) -> tuple[Assignment, ...]:
    assignments, first_layer = [], 0
    for share in split.chosen.choice.ranges:
        hand = crew.hands[share.offer.node][share.offer.group]
        last_layer = first_layer + share.layers - 1
        why = share_why(share, split, hand)
        assignments.append(Assignment(hand=hand, first_layer=first_layer, last_layer=last_layer, why=why))
        first_layer = last_layer + 1
    return tuple(assignments)
