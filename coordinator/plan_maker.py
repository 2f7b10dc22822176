"""From what is asked for to a plan: looks for nodes, finds the model on them, decides who holds what.

Loads nothing. A plan made again after a loss prefers the one before: what its nodes still have in memory they adopt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from coordinator.catalogue import FoundModel, find_model
from coordinator.discovery.finder import Finder
from coordinator.discovery.members import Member, unusable_notes
from coordinator.planning.adoption import adopt
from coordinator.planning.planner import make_plan
from coordinator.planning.problem import Problem
from layerline.errors import LayerlineError, ModelMismatchError, NodeHeldError, PlanDoesNotFitError
from layerline.models.card import ModelCard
from layerline.plan import Plan, PlanRequest
from layerline.reports import Announcement, NodeProgress, PrepareEvent

Tell = Callable[[PrepareEvent], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class MadePlan:
    """A plan, the model's card, and host:port of each node's control port, where it answered first, by node id."""

    plan: Plan
    card: ModelCard
    addresses: Mapping[str, Sequence[str]]


class Planner(Protocol):
    """What makes plans: `PlanMaker`, or a fake."""

    async def plan(self, request: PlanRequest, tell: Tell) -> MadePlan:
        """The first plan."""

    async def plan_again(self, request: PlanRequest, lost: MadePlan, tell: Tell, *, keep: bool) -> MadePlan:
        """The plan that comes after `lost`."""


class PlanMaker:
    """Makes plans from the nodes that `search` finds."""

    def __init__(self, search: Finder) -> None:
        self._search = search

    async def plan(self, request: PlanRequest, tell: Tell) -> MadePlan:
        """The plan for `request` and the nodes there are now; raises why there is none."""
        members, found = await self._found(request, tell)
        return _made(_decided(request, members, found), members, found)

    async def plan_again(self, request: PlanRequest, lost: MadePlan, tell: Tell, *, keep: bool) -> MadePlan:
        """The plan that comes after `lost`: with `keep` the same, if all its nodes are there; else one of its context.

        A plan of its context failing, it is one that does for `request`. ModelMismatchError if the model's files are
        others by now.
        """
        members, found = await self._found(request, tell)
        if found.card.digest != lost.card.digest:
            raise ModelMismatchError(
                f"The files of model {lost.card.name} are not what they were when it was brought up.",
                remedy="Ask again, for an answer of the new ones.",
            )
        there = {node.node_id for node in found.nodes}
        if keep and there.issuperset(stage.node_id for stage in lost.plan.stages):
            notes = ("The plan is the one before, as its nodes are all there.", *found.notes, *unusable_notes(members))
            return _made(replace(lost.plan, notes=notes), members, found)
        try:
            plan = _decided(replace(request, context_tokens=lost.plan.context_tokens), members, found)
        except PlanDoesNotFitError:
            plan = _decided(request, members, found)
        return _made(plan, members, found)

    async def _found(self, request: PlanRequest, tell: Tell) -> tuple[Sequence[Member], FoundModel]:
        tell(Announcement(text="Looking for nodes."))
        members = await self._search.members()
        usable = [member for member in members if not member.unusable]
        if not usable:
            raise self._nobody(members)

        def progressed(node: str, done_bytes: int, total_bytes: int) -> None:
            tell(NodeProgress(node=node, phase="index", done_bytes=done_bytes, total_bytes=total_bytes))

        needed = [stage.node for stage in request.layers]
        return members, await find_model(request.model, usable, progressed, needed=needed)

    def _nobody(self, members: Sequence[Member]) -> LayerlineError:
        error = self._search.nothing_found(members)
        if any(member.facts and member.facts.held_by for member in members):
            remedy = "Use that coordinator (--coordinator HOST:PORT), or stop it."
            return NodeHeldError(error.message, remedy=remedy)
        return error


def untold(_event: PrepareEvent) -> None:
    """A `Tell` for where nobody listens."""


def _decided(request: PlanRequest, members: Sequence[Member], found: FoundModel) -> Plan:
    problem = Problem.of(found.card, request, found.nodes, (*found.notes, *unusable_notes(members)))
    return adopt(problem) or make_plan(problem)


def _made(plan: Plan, members: Sequence[Member], found: FoundModel) -> MadePlan:
    addresses = {member.facts.node_id: member.addresses for member in members if member.facts}
    return MadePlan(plan=plan, card=found.card, addresses=addresses)
