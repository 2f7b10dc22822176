"""Why a stage spans as many devices of its node as it does, in words with numbers for the person who reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coordinator.planning.crew import Crew
from coordinator.planning.footprint import PAGE_TOKENS, Ends, Footprint
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
    hand, layers, ends = assignment.hand, assignment.layers, assignment.ends(footprint.spec)
    if crew.asked:
        return f"{_devices(hand)}, as --tensor-parallel says" if len(hand.ranks) == crew.asked else ""
    own = sorted(crew.hands_of(hand.node), key=lambda each: each.time_s(layers, ends))
    if len(hand.ranks) > 1:
        return _group_why(footprint, assignment, [each for each in own if len(each.ranks) == 1])
    group = next((each for each in own if len(each.ranks) > 1 and each.holds(footprint, layers, ends)), None)
    return f"one device, as {_times(hand, group, layers, ends)}" if group else ""


def _group_why(footprint: Footprint, assignment: Assignment, alone: Sequence[Hand]) -> str:
    """Why the stage has several devices and not one of `alone`, which are in order of speed."""
    hand, layers, ends = assignment.hand, assignment.layers, assignment.ends(footprint.spec)
    fastest = next((each for each in alone if each.holds(footprint, layers, ends)), None)
    if fastest is None:
        largest = max(alone, key=lambda each: each.budget_bytes)
        needed, offered = largest.needed_bytes(footprint, layers, ends), largest.budget_bytes
        reason = f"it takes {format_bytes(needed)} on one device and none offers more than {format_bytes(offered)}"
        return f"{_devices(hand)}, as {reason}"
    if hand.time_s(layers, ends) >= fastest.time_s(layers, ends):
        tokens = [PAGE_TOKENS * each.most_pages(footprint, layers, ends) for each in (hand, fastest)]
        return f"{_devices(hand)}, for KV pages of {tokens[0]} tokens where one device has room for {tokens[1]}"
    return f"{_devices(hand)}, as {_times(fastest, hand, layers, ends)}"


def _times(alone: Hand, group: Hand, layers: int, ends: Ends) -> str:
    """How long a token is in the stage on one device and on several."""
    if not group.is_measured:
        return f"the time of an all-reduce between {_devices(group)} is not measured"
    alone_s, group_s = alone.time_s(layers, ends), group.time_s(layers, ends)
    return (
        f"a token takes {format_seconds(alone_s)} on one and {format_seconds(group_s)} on {len(group.ranks)},"
        f" with two all-reduces of {format_seconds(group.all_reduce_s)} a layer"
    )


def _devices(hand: Hand) -> str:
    return "1 device" if len(hand.ranks) == 1 else f"{len(hand.ranks)} devices"
