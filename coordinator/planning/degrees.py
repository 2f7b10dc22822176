"""Why a stage spans as many devices of its node as it does, in words with numbers for the person who reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coordinator.planning.crew import Crew
from coordinator.planning.footprint import PAGE_TOKENS, Footprint
from coordinator.planning.hand import Hand
from coordinator.planning.stages import Assignment
from layerline.models.shares import unevenness
from layerline.units import format_bytes, format_seconds


def with_degrees(crew: Crew, footprint: Footprint, assignments: Sequence[Assignment]) -> tuple[Assignment, ...]:
    """The assignments with these reasons beside their own."""
    reasons = [_degree_why(crew, footprint, assignment) for assignment in assignments]
    return tuple(
        replace(assignment, why=f"{assignment.why}; {reason}") if reason else assignment
        for assignment, reason in zip(assignments, reasons, strict=True)
    )


def unevenness_notes(footprint: Footprint, assignments: Sequence[Assignment]) -> list[str]:
    """What could not be split in proportion."""
    uneven = (
        (assignment.hand.node.name, unevenness(footprint.spec, [rank.share for rank in assignment.hand.ranks]))
        for assignment in assignments
    )
    return [f"On {name}: {sentence}" for name, sentence in uneven if sentence]


def _degree_why(crew: Crew, footprint: Footprint, assignment: Assignment) -> str:
    """Why the stage has one device, or several; empty where its node has no choice."""
    hand, own = assignment.hand, crew.hands_of(assignment.hand.node)
    if crew.asked:
        return f"{_devices(hand)}, as --tensor-parallel says" if len(hand.ranks) == crew.asked else ""
    if len(hand.ranks) == 1:
        wider = next((each for each in own if len(each.ranks) > 1), None)
        return f"one device, as {_against(hand, wider)}" if wider else ""
    ends, layers = assignment.ends(footprint.spec), assignment.layers
    alone = [each for each in own if len(each.ranks) == 1]
    largest = max(alone, key=lambda each: each.budget_bytes)
    if not any(each.holds(footprint, layers, ends) for each in alone):
        needed, offered = largest.needed_bytes(footprint, layers, ends), largest.budget_bytes
        return (
            f"{_devices(hand)}, as it takes {format_bytes(needed)} on one device and none offers more than"
            f" {format_bytes(offered)}"
        )
    if hand.layer_s >= alone[0].layer_s:
        tokens = [PAGE_TOKENS * each.most_pages(footprint, layers, ends) for each in (hand, alone[0])]
        return f"{_devices(hand)}, for KV pages of {tokens[0]} tokens where one device has room for {tokens[1]}"
    return f"{_devices(hand)}, as {_against(alone[0], hand)}"


def _against(alone: Hand, group: Hand) -> str:
    """The times of a layer on one device and on several."""
    if not group.is_measured:
        return f"the time of an all-reduce between {_devices(group)} is not measured"
    return (
        f"a layer takes {format_seconds(alone.layer_s)} on one and {format_seconds(group.layer_s)} on"
        f" {len(group.ranks)}, with two all-reduces of {format_seconds(group.all_reduce_s)}"
    )


def _devices(hand: Hand) -> str:
    return "1 device" if len(hand.ranks) == 1 else f"{len(hand.ranks)} devices"
