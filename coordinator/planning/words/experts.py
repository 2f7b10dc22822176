"""Why experts are where they are: one clause."""

from __future__ import annotations

from coordinator.planning.decision import ExpertsReason, ExpertsShared, SharedCost
from layerline.units import format_bytes, format_seconds


def why_experts(reason: ExpertsReason) -> str:
    """How the devices share experts, and why so."""
    if isinstance(reason, ExpertsShared):
        return _why_shared(reason)
    asked = ", as --expert-device says" if reason.asked else ", as they do not fit otherwise"
    return (
        f"{reason.on_device} of {reason.experts} experts of a layer on each device and the others, which take"
        f" {format_bytes(reason.beside_bytes)}, on {reason.device}{asked}"
    )


def _why_shared(reason: ExpertsShared) -> str:
    own, other = ("spread", "split by columns") if reason.spread else ("split by columns", "spread")
    asked = ", as --experts says" if reason.asked else ""
    rows = f"of a row's {reason.chosen} experts the busiest device has {reason.of_a_row:.2g} where they are spread"
    sums = f", with the same all-reduces of {format_seconds(reason.all_reduce_s)}" if reason.all_reduce_s else ""
    clause = f"experts {own}{asked}: {_cost(reason.own)}"
    if reason.other is None:
        return f"{clause}; they cannot be {other}"
    lacks = "" if reason.other.fits else ", which does not fit"
    return f"{clause}; {other} they would take {_cost(reason.other)}{lacks}{sums}; {rows}"


def _cost(cost: SharedCost) -> str:
    return f"{format_bytes(cost.needed_bytes)} and {format_seconds(cost.time_s)} a token"
