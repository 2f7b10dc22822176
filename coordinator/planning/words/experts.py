"""Where experts are: a clause of a stage, and a note on what that costs and what the other way would."""

from __future__ import annotations

from coordinator.planning.decision import ExpertsBeside, ExpertsReason, ExpertsShared, SharedCost
from layerline.units import format_bytes, format_seconds


def where_experts(reason: ExpertsReason) -> str:
    """How the devices of a stage have experts."""
    if isinstance(reason, ExpertsShared):
        asked = ", as --experts says" if reason.asked else ""
        return f"experts {_way(spread=reason.spread)}{asked}"
    asked = ", as --expert-device says" if reason.asked else ", as they do not fit otherwise with this context"
    return (
        f"{reason.on_device} of {reason.experts} experts of a layer on each device and the others, which take"
        f" {format_bytes(reason.beside_bytes)}, on {reason.device}{asked}"
    )


def experts_note(node: str, reason: ExpertsReason) -> str:
    """What sharing experts costs on a node, beside what the other way would; empty where there is nothing to
    compare.
    """
    if isinstance(reason, ExpertsBeside) or reason.other is None:
        return ""
    lacks = "" if reason.other.fits else ", which does not fit"
    sums = f" All-reduces of {format_seconds(reason.all_reduce_s)} are the same." if reason.all_reduce_s else ""
    return (
        f"Experts {_way(spread=reason.spread)} take {_cost(reason.own)} on {node},"
        f" {_way(spread=not reason.spread)} {_cost(reason.other)}{lacks}: of a row's {reason.chosen} experts the"
        f" busiest device has {reason.of_a_row:.2g} where they are spread.{sums}"
    )


def _way(*, spread: bool) -> str:
    return "spread" if spread else "split by columns"


def _cost(cost: SharedCost) -> str:
    return f"{format_bytes(cost.needed_bytes)} and {format_seconds(cost.time_s)} a token"
