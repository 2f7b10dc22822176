"""What computes a model: the kernels, on the nodes that have them, or torch, on all nodes. Which is tried first.

A node whose CPU has no kernels is left out rather than that the others hold weights in a larger form for its sake;
one with an accelerator is not, since it is the faster for it. What does not fit in the one way is tried in the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from coordinator.planning.adoption import adopt
from coordinator.planning.planner import make_plan
from coordinator.planning.problem import Problem, has_kernels
from layerline.errors import PlanDoesNotFitError, PlanError
from layerline.facts import NodeFacts
from layerline.models.card import ModelCard
from layerline.plan import Plan, PlanRequest


def plan_for(
    card: ModelCard,
    request: PlanRequest,
    nodes: Sequence[NodeFacts],
    notes: Iterable[str] = (),
    *,
    kernels: bool | None = None,
) -> Plan:
    """The plan that is loaded already, or the first that fits; raises why there is none.

    `kernels` says whether they are to compute, as after a loss in mid-answer; None leaves the choice.
    """
    problems = list(_problems(card, request, nodes, tuple(notes), kernels))
    for problem in problems:
        adopted = adopt(problem)
        if adopted is not None:
            return adopted
    for problem in problems[:-1]:
        try:
            return make_plan(problem)
        except PlanDoesNotFitError:
            continue
    return make_plan(problems[-1])


def _problems(
    card: ModelCard, request: PlanRequest, nodes: Sequence[NodeFacts], notes: tuple[str, ...], kernels: bool | None
) -> Iterator[Problem]:
    """Those to be tried, in their order; at least one."""
    named = _named(request, nodes)
    able = [node for node in named if has_kernels(node)]
    if kernels is not None or len(able) in (0, len(named)):
        yield Problem.of(
            card, request, able if kernels else nodes, notes, kernels=bool(able) if kernels is None else kernels
        )
        return
    without = [node for node in named if not has_kernels(node)]
    if request.layers:
        yield Problem.of(card, request, nodes, (*notes, _torch_note(without)), kernels=False)
        return
    by_kernels = Problem.of(card, request, able, (*notes, _left_out_note(without)), kernels=True)
    try:
        by_torch = Problem.of(card, request, nodes, (*notes, _torch_note(without)), kernels=False)
    except PlanError:  # only kernels can do what is asked for
        yield by_kernels
        return
    accelerated = any(device.kind != "cpu" for node in without for device in node.devices)
    yield from (by_torch, by_kernels) if accelerated else (by_kernels, by_torch)


def _named(request: PlanRequest, nodes: Sequence[NodeFacts]) -> Sequence[NodeFacts]:
    """The nodes that --layers names, or all."""
    names: Collection[str] = {stage.node for stage in request.layers}
    return [node for node in nodes if node.name in names or node.node_id in names] or nodes


def _left_out_note(without: Sequence[NodeFacts]) -> str:
    names = ", ".join(sorted(node.name for node in without))
    verb, pronoun = ("has", "it") if len(without) == 1 else ("have", "they")
    return f"{names} {verb} a device without kernels, so {pronoun} took no part and the others hold weights as stored."


def _torch_note(without: Sequence[NodeFacts]) -> str:
    names = ", ".join(sorted(node.name for node in without))
    verb = "has" if len(without) == 1 else "have"
    return f"{names} {verb} a device without kernels, so that torch computes everywhere."
