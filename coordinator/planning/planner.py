"""Who holds which layers, decided from what the nodes offer and how fast they were measured to be.

One node if the model fits one; else the split that `partition` finds. The plan says why, in numbers.
Pure: knows no connections and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.planning.contexts import context_choices
from coordinator.planning.crew import Crew, Hand
from coordinator.planning.explanations import (
    alone_why,
    context_notes,
    left_out_notes,
    share_why,
    split_notes,
    whole_notes,
)
from coordinator.planning.footprint import FIRST, LAST, MIDDLE, Footprint
from coordinator.planning.manual import plan_by_hand
from coordinator.planning.partition import Offer, Partition, best_partition
from coordinator.planning.refusals import does_not_fit
from coordinator.planning.stages import Assignment, assembled
from layerline.facts import NodeFacts
from layerline.models.spec import ModelSpec
from layerline.plan import Plan, PlanRequest

HOP_S = 0.001  # from one stage to the next on a LAN, both ends' work included
_PS_PER_S = 1e12


def make_plan(spec: ModelSpec, card_name: str, digest: str, request: PlanRequest, nodes: Sequence[NodeFacts]) -> Plan:
    """The plan for the model on `nodes`, as asked for in `request`; by hand if it gives layers.

    Raises PlanDoesNotFitError, PlanInvalidError or UsageError.
    """
    if request.layers:
        return plan_by_hand(spec, card_name, digest, request, nodes)
    crew = Crew.of(nodes, request.dtype)
    choices = context_choices(spec, request.context_tokens)
    for context_tokens in choices:
        footprint = Footprint.asked(spec, request, context_tokens)
        placement = _placed(footprint, crew)
        if placement is not None:
            notes = [
                *placement.notes,
                *left_out_notes(footprint, crew, placement.assignments, HOP_S),
                *context_notes(context_tokens, choices[0]),
            ]
            return assembled(spec, card_name, digest, request, context_tokens, placement.assignments, notes)
    raise does_not_fit(footprint, request, context_tokens, crew.nodes)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Placement:
    """Every layer on a device, and why so."""

    assignments: tuple[Assignment, ...]
    notes: list[str]


def _placed(footprint: Footprint, crew: Crew) -> _Placement | None:
    return _placed_alone(footprint, crew) or _placed_apart(footprint, crew)


def _placed_alone(footprint: Footprint, crew: Crew) -> _Placement | None:
    hand = crew.hand_for_all(footprint)
    if hand is None:
        return None
    why = alone_why(crew)
    whole = Assignment(hand=hand, first_layer=0, last_layer=footprint.spec.layers - 1, why=why)
    return _Placement(assignments=(whole,), notes=whole_notes(footprint, hand))


def _placed_apart(footprint: Footprint, crew: Crew) -> _Placement | None:
    offers = [_offers(footprint, hands, node) for node, hands in enumerate(crew.hands)]
    partition = best_partition(offers, footprint.spec.layers, round(HOP_S * _PS_PER_S))
    if partition is None:
        return None
    return _Placement(assignments=_assignments(crew, partition), notes=split_notes(footprint, crew, partition))


def _offers(footprint: Footprint, hands: Sequence[Hand], node: int) -> list[Offer]:
    """The offers of one node, without those of devices no faster and no larger than another (eight equal GPUs)."""
    offers: list[Offer] = []
    most_bytes = 0
    for device, hand in enumerate(hands):
        if hand.device.budget_bytes > most_bytes:
            offers.append(_offer(footprint, hand, node, device))
            most_bytes = hand.device.budget_bytes
    return offers


def _offer(footprint: Footprint, hand: Hand, node: int, device: int) -> Offer:
    budget_bytes = hand.device.budget_bytes
    return Offer(
        node=node,
        device=device,
        layer_ps=max(1, round(footprint.layer_bytes * hand.byte_s * _PS_PER_S)),
        output_ps=round(footprint.output_bytes * hand.byte_s * _PS_PER_S),
        most_layers={ends: footprint.most_layers(budget_bytes, ends) for ends in (FIRST, MIDDLE, LAST)},
    )


def _assignments(crew: Crew, partition: Partition) -> tuple[Assignment, ...]:
    assignments, first_layer = [], 0
    for share in partition.shares:
        hand = crew.hands[share.offer.node][share.offer.device]
        last_layer = first_layer + share.layers - 1
        why = share_why(share, partition, hand)
        assignments.append(Assignment(hand=hand, first_layer=first_layer, last_layer=last_layer, why=why))
        first_layer = last_layer + 1
    return tuple(assignments)
