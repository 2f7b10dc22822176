"""The plan for a problem: decided on, and explained."""

from __future__ import annotations

from coordinator.planning.decision import Misfit
from coordinator.planning.manual import place_by_hand
from coordinator.planning.placement import place
from coordinator.planning.problem import Problem
from coordinator.planning.stages import plan_of_stages, stage_plan, stage_specs
from coordinator.planning.words.notes import plan_notes
from coordinator.planning.words.reasons import stage_why
from coordinator.planning.words.refusals import refusal
from layerline.plan import Plan


def make_plan(problem: Problem) -> Plan:
    """The plan for the model on the nodes as asked for; by hand if the request gives layers.

    Raises PlanDoesNotFitError, PlanInvalidError or UsageError.
    """
    decision = place_by_hand(problem) if problem.request.layers else place(problem)
    if isinstance(decision, Misfit):
        raise refusal(decision)
    stages = [
        stage_plan(problem, assignment.group.node, spec, stage_why(assignment))
        for assignment, spec in zip(decision.assignments, stage_specs(decision), strict=True)
    ]
    return plan_of_stages(problem, decision.context_tokens, stages, plan_notes(decision))
