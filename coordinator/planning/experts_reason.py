"""Why the devices of a stage share experts as they do: what it costs, beside what the other way would cost."""

from __future__ import annotations

from coordinator.planning.candidates import Candidates
from coordinator.planning.decision import Assignment, ExpertsBeside, ExpertsReason, ExpertsShared, SharedCost
from coordinator.planning.device_group import DeviceGroup
from layerline.models.expert_rows import busiest_of_a_row


def experts_reason(candidates: Candidates, pages: int, assignment: Assignment) -> ExpertsReason | None:
    """That of a stage; None if it has no experts, or one device that has them all."""
    group, layers, request = assignment.group, assignment.layers, candidates.problem.request
    kinds = [candidates.problem.spec.layer(layer).feed_forward for layer in layers]
    experts = next((kind.experts for kind in kinds if kind.experts), None)
    if experts is None:
        return None
    if group.beside is not None:
        return ExpertsBeside(
            asked=request.expert_device == "cpu",
            device=group.beside.device.device,
            on_device=group.sharing.device_experts,
            experts=-(-experts.count // len(group.ranks)),
            beside_bytes=sum(rank.footprint.beside_bytes(layers) for rank in group.ranks),
        )
    if len(group.ranks) == 1:
        return None
    total = sum(group.sharing.weights)
    other = next((each for each in candidates.groups_of(group.node) if _is_the_other(each, group)), None)
    return ExpertsShared(
        spread=group.sharing.spreads,
        asked=request.experts != "auto",
        chosen=experts.chosen,
        of_a_row=busiest_of_a_row(experts.chosen, [weight / total for weight in group.sharing.weights]),
        all_reduce_s=group.all_reduce_s,
        own=_cost(group, layers, pages),
        other=_cost(other, layers, pages) if other else None,
    )


def _is_the_other(other: DeviceGroup, group: DeviceGroup) -> bool:
    """Whether a group has the same devices in the same proportions, and shares experts in the other way."""
    alike = other.devices == group.devices and other.sharing.proportions == group.sharing.proportions
    return alike and other.beside is None and other.sharing.spreads != group.sharing.spreads


def _cost(group: DeviceGroup, layers: range, pages: int) -> SharedCost:
    return SharedCost(
        needed_bytes=group.needed_bytes(layers, pages),
        time_s=group.time_s(layers),
        fits=group.holds(layers, pages),
    )
