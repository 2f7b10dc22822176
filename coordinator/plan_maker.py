"""From what is asked for to a plan: looks for nodes, finds the model on them, decides who holds what.

Loads nothing. A plan made again after a loss prefers the one before: what its nodes still have in memory they adopt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from coordinator.catalogue import FoundModel, OnProgress, OpenModel, find_model, is_of_digest, is_one_of
from coordinator.discovery.finder import Enough, Finder
from coordinator.discovery.members import Member, unusable_notes
from coordinator.made_plan import MadePlan, Tell, untold
from coordinator.planning.choices import loaded_plan, plan_for
from layerline.errors import (
    LayerlineError,
    ModelMismatchError,
    NodeHeldError,
    PlanError,
    UsageError,
)
from layerline.models.card import ModelCard
from layerline.models.names import same_name
from layerline.plan import Computing, Plan
from layerline.plan_request import PlanRequest
from layerline.reports import Announcement, NodeProgress, waiting_sentence

AGAIN_DEADLINE_S = 1.0  # for the nodes that do not answer, after a loss


@dataclass(frozen=True, kw_only=True, slots=True)
class Availability:
    """Whether there are nodes and no coordinator holds any; else where coordinators that hold some take requests."""

    free: bool
    coordinators: tuple[str, ...] = ()


class FindModel(Protocol):
    """What finds the model that is meant: `coordinator.catalogue.find_model`, or a fake."""

    async def __call__(
        self,
        reference: str,
        members: Sequence[Member],
        open_model: OpenModel,
        on_progress: OnProgress,
        *,
        needed: Collection[str] = (),
    ) -> FoundModel:
        """The model, on those of the `members` that have it."""


class PlanMaker:
    """Makes plans from the nodes that `search` finds, of the cards that `open_model` has from them."""

    def __init__(self, search: Finder, open_model: OpenModel, find: FindModel = find_model) -> None:
        self._search = search
        self._open_model = open_model
        self._find = find

    async def plan(self, request: PlanRequest, tell: Tell) -> MadePlan:
        """The plan for `request` and the nodes there are now; raises why there is none."""
        members, found = await self._found(request, tell)
        return _made(await _decided(request, members, found), members, found)

    async def plan_again(self, request: PlanRequest, lost: MadePlan, tell: Tell, *, keep: bool) -> MadePlan:
        """The plan that comes after `lost`: with `keep` the same, if all its nodes are there; else one of its context.

        A plan of its context failing, it is one that does for `request`. ModelMismatchError if the model's files are
        others by now.
        """
        kept = {stage.node_id for stage in lost.plan.stages}
        members, found = await self._found_again(request, tell, kept if keep else set())
        if found.card.digest != lost.card.digest:
            raise ModelMismatchError(
                f"The files of model {lost.card.name} are not what they were when it was brought up.",
                remedy="Ask again, for an answer of the new ones.",
            )
        if keep and kept.issubset(node.node_id for node in found.nodes):
            notes = ("The plan is the one before, as its nodes are all there.", *found.notes, *unusable_notes(members))
            return _made(replace(lost.plan, notes=notes), members, found)
        try:
            plan = await _decided(_as_before(request, lost.plan), members, found, computing=lost.plan.computing)
        except PlanError:
            plan = await _decided(request, members, found)
        return _made(plan, members, found)

    async def availability(self, model: str) -> Availability:
        """Who holds the nodes: said as soon as one that is held answers, or those with `model` in memory.

        Whoever serves a model holds its nodes, so that where none is held there is no coordinator to look for.
        """
        try:
            if model:
                request = PlanRequest(model=model)
                in_memory = await self._in_memory(request, untold, wait_for_starting=False, until=_are_served)
                members = in_memory.members
            else:  # any model will do, as for a list of nodes
                members = await self._members(untold, wait_for_starting=False, enough=_are_served)
        except (LayerlineError, ValueError):  # it is told where it matters
            return Availability(free=False)
        return Availability(free=_are_free(members), coordinators=_coordinators(members))

    async def is_of_digest(self, reference: str, digest: str) -> bool:
        """Whether `reference` means a model whose weights have that digest, whatever nodes call it."""
        members = await self._members(untold, wait_for_starting=False)
        usable = [member for member in members if not member.unusable]
        try:
            return await is_of_digest(reference, usable, self._open_model, digest)
        except LayerlineError:  # nobody has it, or its files cannot be read
            return False

    async def _found(self, request: PlanRequest, tell: Tell) -> tuple[Sequence[Member], FoundModel]:
        tell(Announcement(text="Looking for nodes."))
        try:
            in_memory = await self._in_memory(request, tell, wait_for_starting=True)
        except LayerlineError:
            if request.layers:  # only nodes that it names were asked
                raise
            in_memory = None  # the other nodes may do without those
        if in_memory and in_memory.found is None:
            return in_memory.members, await self._model_on(in_memory.members, request, tell)
        if in_memory and in_memory.found and _is_adoptable(request, in_memory.found):
            return in_memory.members, in_memory.found
        members = await self._members(tell)
        return members, await self._model_on(members, request, tell)

    async def _found_again(
        self, request: PlanRequest, tell: Tell, kept: Set[str]
    ) -> tuple[Sequence[Member], FoundModel]:
        """After a loss: the nodes that are known, without a wait for those that do not answer at once."""
        tell(Announcement(text="Looking for nodes."))
        members = await self._search.members(
            deadline_s=AGAIN_DEADLINE_S,
            wait_for_starting=False,
            enough=lambda found: bool(kept) and kept <= _ids(found),
        )
        return members, await self._model_on(members, request, tell)

    async def _in_memory(
        self, request: PlanRequest, tell: Tell, *, wait_for_starting: bool, until: Enough = lambda _: False
    ) -> _InMemory:
        """The nodes that have all of the model in memory, as soon as they have answered; else all nodes there are.

        Only those that have answered, and no model, once `until` is true of them.
        """
        members = await self._members(
            tell,
            wait_for_starting=wait_for_starting,
            enough=lambda found: until(found) or bool(_loaded(found, request)),
        )
        loaded = _loaded(members, request)
        if until(members) or not loaded:
            return _InMemory(members=members, found=None)
        card = (await self._found_on(loaded, request, tell)).card
        if not _is_whole(loaded, card):
            members = await self._members(
                tell,
                wait_for_starting=wait_for_starting,
                enough=lambda found: _is_whole(_loaded(found, request), card),
            )
        loaded = _loaded(members, request)
        if not _is_whole(loaded, card):
            return _InMemory(members=members, found=None)
        return _InMemory(members=loaded, found=await self._found_on(loaded, request, tell))

    async def _members(
        self, tell: Tell, *, wait_for_starting: bool = True, enough: Enough = lambda _: False
    ) -> Sequence[Member]:
        def waited_for(names: Sequence[str]) -> None:
            if names:
                tell(Announcement(text=waiting_sentence(names)))

        return await self._search.members(wait_for_starting=wait_for_starting, enough=enough, on_starting=waited_for)

    async def _model_on(self, members: Sequence[Member], request: PlanRequest, tell: Tell) -> FoundModel:
        usable = [member for member in members if not member.unusable]
        if not usable:
            raise self._nobody(members)
        return await self._found_on(usable, request, tell)

    async def _found_on(self, usable: Sequence[Member], request: PlanRequest, tell: Tell) -> FoundModel:
        return await self._find(request.model, usable, self._open_model, _indexing(tell), needed=_named(request))

    def _nobody(self, members: Sequence[Member]) -> LayerlineError:
        error = self._search.nothing_found(members)
        if any(member.facts and member.facts.held_by for member in members):
            remedy = "Use that coordinator (--coordinator HOST:PORT), or stop it."
            return NodeHeldError(error.message, remedy=remedy)
        return error


@dataclass(frozen=True, kw_only=True, slots=True)
class _InMemory:
    """The nodes with a whole model in memory, and the model; or all nodes, and None."""

    members: Sequence[Member]
    found: FoundModel | None


def _named(request: PlanRequest) -> Sequence[str]:
    """The nodes that `request` names, by name or id."""
    return [stage.node for stage in request.layers]


def _are_free(members: Sequence[Member]) -> bool:
    held = any(member.facts and member.facts.held_by for member in members)
    return not held and any(not member.unusable for member in members)


def _coordinators(members: Sequence[Member]) -> tuple[str, ...]:
    """Where the coordinators take requests that hold some of these."""
    holders = [member.facts.held_by for member in members if member.facts and member.facts.held_by]
    return tuple(dict.fromkeys(holder.address for holder in holders if holder.takes_requests))


def _are_served(members: Sequence[Member]) -> bool:
    """Whether a coordinator that takes requests holds one of these."""
    return bool(_coordinators(members))


def _loaded(members: Sequence[Member], request: PlanRequest) -> Sequence[Member]:
    """The usable members that have some layers of the model in memory; of nodes that `request` names, if it does."""
    named = _named(request)
    return [
        member
        for member in members
        if member.facts
        and not member.unusable
        and (not named or is_one_of(member, named))
        and any(same_name(stage.spec.model, request.model) for stage in member.facts.loaded)
    ]


def _is_whole(loaded: Sequence[Member], card: ModelCard) -> bool:
    """Whether these have every layer of the model of `card` in memory."""
    stages = (stage.spec for member in loaded if member.facts for stage in member.facts.loaded)
    layers = {
        layer for spec in stages if spec.digest == card.digest for layer in range(spec.first_layer, spec.last_layer + 1)
    }
    return len(layers) >= card.spec.layers


def _is_adoptable(request: PlanRequest, found: FoundModel) -> bool:
    """Whether what these nodes have in memory does; a request that names other nodes is for all of them to answer."""
    try:
        return loaded_plan(found.card, request, found.nodes) is not None
    except (PlanError, UsageError):
        return False


def _ids(members: Sequence[Member]) -> set[str]:
    """The ids of the usable ones."""
    return {member.facts.node_id for member in members if member.facts and not member.unusable}


def _indexing(tell: Tell) -> OnProgress:
    def progressed(node: str, done_bytes: int, total_bytes: int) -> None:
        tell(NodeProgress(node=node, phase="index", done_bytes=done_bytes, total_bytes=total_bytes))

    return progressed


def _as_before(request: PlanRequest, lost: Plan) -> PlanRequest:
    """The request with all that decides an answer's numbers as it was, since answers go on.

    Where every device computed as it can, that still decides what each of them holds.
    """
    as_before = replace(request, context_tokens=lost.context_tokens, dtype=lost.dtype, kv_dtype=lost.kv_dtype)
    if lost.computing == "each":
        return as_before
    return replace(as_before, weights=lost.weights, precision=lost.precision)


async def _decided(
    request: PlanRequest, members: Sequence[Member], found: FoundModel, *, computing: Computing | None = None
) -> Plan:
    notes = (*found.notes, *unusable_notes(members))
    # It takes seconds where there are many experts and devices, and nodes wait for heartbeats all the time.
    return await asyncio.to_thread(plan_for, found.card, request, found.nodes, notes, computing=computing)


def _made(plan: Plan, members: Sequence[Member], found: FoundModel) -> MadePlan:
    nodes = {member.facts.node_id: member.peer for member in members if member.facts}
    return MadePlan(plan=plan, card=found.card, nodes=nodes)
