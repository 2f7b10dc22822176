"""Who computes a model, and what is tried first: every device in its own way, unless the kernels alone do for it.

A node whose CPU has no kernels is left out as long as the others hold the model, which are the faster and more exact
for it; one with an accelerator is not. Devices that do not multiply weights as they are stored hold them in the dtype,
and as they are stored where the model does not fit otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from coordinator.planning.adoption import adopt
from coordinator.planning.planner import make_plan
from coordinator.planning.problem import Problem
from coordinator.planning.ways import computing_of, has_kernels
from layerline.errors import PlanDoesNotFitError, PlanError, PlanInvalidError
from layerline.facts import NodeFacts
from layerline.models.card import ModelCard
from layerline.plan import Computing, Plan
from layerline.plan_request import PlanRequest


def plan_for(
    card: ModelCard,
    request: PlanRequest,
    nodes: Sequence[NodeFacts],
    notes: Iterable[str] = (),
    *,
    computing: Computing | None = None,
) -> Plan:
    """The plan that is loaded already, or the first that fits with the context that is wished, or else with most.

    Raises why there is none. `computing` says who computes, as after a loss in mid-answer; None leaves the choice.
    """
    problems = _problems(card, request, nodes, tuple(notes), computing)
    adopted = _adopted(problems)
    if adopted is not None:
        return adopted
    plans: list[Plan] = []
    for problem in problems:
        try:
            plans.append(make_plan(problem))
        except PlanDoesNotFitError:
            if problem is problems[-1] and not plans:
                raise
        else:
            if plans[-1].context_tokens == problem.contexts[0]:
                break
    return max(plans, key=lambda plan: plan.context_tokens)


def loaded_plan(card: ModelCard, request: PlanRequest, nodes: Sequence[NodeFacts]) -> Plan | None:
    """The plan that is loaded already, if there is one; raises why there can be none."""
    return _adopted(_problems(card, request, nodes, (), None))


def _adopted(problems: Iterable[Problem]) -> Plan | None:
    return next((plan for problem in problems if (plan := adopt(problem))), None)


def _problems(
    card: ModelCard,
    request: PlanRequest,
    nodes: Sequence[NodeFacts],
    notes: tuple[str, ...],
    computing: Computing | None,
) -> list[Problem]:
    """Those to be tried, in their order; at least one."""
    _check_has_experts(card, request)
    named = _named(request, nodes)
    able = [node for node in named if any(map(has_kernels, node.devices))]
    if computing is not None:
        return list(_packed_after(card, request, able if computing == "kernels" else nodes, notes, computing))
    own = computing_of(named)
    if own != "each" or request.layers:
        return list(_packed_after(card, request, nodes, notes, own))
    without = [node for node in named if node not in able]
    left_out = (_left_out_note(without),) if without else ()
    by_kernels = Problem.of(card, request, able, (*notes, *left_out), computing="kernels")
    try:
        together = list(_packed_after(card, request, nodes, notes, own))
    except PlanError:  # only kernels can do what is asked for
        return [by_kernels]
    accelerated = any(device.kind != "cpu" for node in named for device in node.devices)
    return together if accelerated else [by_kernels, *together]


def _check_has_experts(card: ModelCard, request: PlanRequest) -> None:
    if any(kind.feed_forward.experts for kind in card.spec.kinds):
        return
    if request.experts == "spread":
        raise PlanInvalidError(f"{request.model} has no experts to spread.", remedy="Leave --experts out.")
    if request.expert_device == "cpu":
        message = f"{request.model} has no experts, so that none can lie on another device."
        raise PlanInvalidError(message, remedy="Leave --expert-device out.")


def _packed_after(
    card: ModelCard,
    request: PlanRequest,
    nodes: Sequence[NodeFacts],
    notes: tuple[str, ...],
    computing: Computing,
) -> Iterator[Problem]:
    """The problem as it is asked, then with all weights as they are stored, if that takes less.

    Last with experts on a CPU beside accelerators, if there could be some; only so where that is asked for.
    """
    problems = list(_packed(card, request, nodes, notes, computing))
    if request.expert_device != "cpu":
        yield from problems
    if request.expert_device != "none" and any(kind.feed_forward.experts for kind in card.spec.kinds):
        accelerated = any(device.kind != "cpu" for node in nodes for device in node.devices)
        last = problems if request.expert_device == "cpu" else problems[-1:] if accelerated else []
        yield from (replace(problem, uses_expert_device=True) for problem in last)


def _packed(
    card: ModelCard,
    request: PlanRequest,
    nodes: Sequence[NodeFacts],
    notes: tuple[str, ...],
    computing: Computing,
) -> Iterator[Problem]:
    asked = Problem.of(card, request, nodes, notes, computing=computing)
    yield asked
    if request.weights or all(way.weights == "stored" for way in asked.ways):
        return
    packed = Problem.of(card, replace(request, weights="stored"), nodes, notes, computing=computing)
    if packed.footprint.needed_bytes(packed.layers, 0) < asked.largest.needed_bytes(asked.layers, 0):
        yield packed


def _named(request: PlanRequest, nodes: Sequence[NodeFacts]) -> Sequence[NodeFacts]:
    """The nodes that --layers names, or all."""
    names: Collection[str] = {stage.node for stage in request.layers}
    return [node for node in nodes if node.name in names or node.node_id in names] or nodes


def _left_out_note(without: Sequence[NodeFacts]) -> str:
    names = ", ".join(sorted(node.name for node in without))
    verb, pronoun, take = ("has", "it", "takes") if len(without) == 1 else ("have", "they", "take")
    return f"{names} {verb} no kernels, so {pronoun} {take} no part: the others hold the model."
