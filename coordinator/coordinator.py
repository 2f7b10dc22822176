"""The coordinator: finds nodes, plans, brings a model into service, answers. One model at a time.

Owns the search for nodes and the model in service; each part's own work is done in the modules it calls. A
pipeline that broke is given back at once, and built anew, from the nodes there are then, for the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, Self, TypeVar

from coordinator.catalogue import FoundModel, find_model
from coordinator.concurrency import ended
from coordinator.discovery.browser import Browser, NoMdns
from coordinator.discovery.finder import Finder
from coordinator.discovery.members import Member, unusable_notes
from coordinator.node_client import describe
from coordinator.plan_match import does_for, other_model
from coordinator.planning.adoption import adopt
from coordinator.planning.planner import make_plan
from coordinator.planning.problem import Problem
from coordinator.serving import Serving, serving
from coordinator.settings import CoordinatorSettings
from layerline.errors import LayerlineError, NoCoordinatorError, NodeHeldError, RequestError
from layerline.models.names import same_name
from layerline.plan import Plan, PlanRequest
from layerline.reports import (
    Announcement,
    CoordinatorFacts,
    ModelReport,
    ModelsReport,
    NodeProgress,
    NodesReport,
    Planned,
    PlanReport,
    PrepareEvent,
    Ready,
)
from layerline.requests import Finished, GenerateRequest, Piece
from layerline.stats_report import StatsReport
from layerline.version import WIRE_VERSION, __version__

MAX_QUEUED_EVENTS = 256

Tell = Callable[[PrepareEvent], None]
Done = TypeVar("Done")


class Coordinator:
    """Used as an `async with` block, which searches for nodes from its beginning and gives everything back.

    `address` is where clients reach it, for what it says of itself.
    """

    def __init__(self, settings: CoordinatorSettings, *, address: str, wanted: PlanRequest | None = None) -> None:
        """`wanted` is what its operator started it for: it brings up nothing else, whoever asks first."""
        self._settings = settings
        self._wanted = wanted
        self._address = address
        self._life = AsyncExitStack()
        self._tasks: set[asyncio.Task[Any]] = set()  # that bring a model up, or watch over one
        self._preparing = asyncio.Lock()
        self._in_service = AsyncExitStack()
        self._serving: Serving | None = None
        self._given_back = asyncio.Event()
        self._built: tuple[str, PlanRequest] | None = None  # the last model and what it was asked for with
        self._finder: Finder | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as life:
            lookout = await life.enter_async_context(Browser()) if self._settings.mdns else NoMdns(loop.time())
            self._finder = Finder(lookout, self._settings.nodes, describe, coordinator=self._settings.name)
            self._life = life.pop_all()
        self._given_back.set()
        return self

    async def __aexit__(self, *failure: object) -> None:
        for task in tuple(self._tasks):
            await ended(task)
        await self._give_back()
        await self._life.aclose()

    def facts(self) -> CoordinatorFacts:
        """Who this is."""
        model = self._serving.plan.model if self._serving else ""
        return CoordinatorFacts(
            name=self._settings.name,
            version=__version__,
            wire_version=WIRE_VERSION,
            model=model,
            address=self._address,
        )

    async def nodes(self) -> NodesReport:
        """Every node there is, usable or not."""
        members = await self._search.members(wait_for_starting=False)
        return NodesReport(nodes=tuple(member.report for member in members), searched=self._search.searched)

    async def models(self) -> ModelsReport:
        """Every model that a usable node has; files that differ under one name are listed apart."""
        nodes: dict[tuple[str, str, int], list[str]] = {}
        for member in await self._search.members(wait_for_starting=False):
            for listing in member.models:
                nodes.setdefault((listing.name, listing.digest, listing.size_bytes), []).append(member.name)
        served = self._serving.plan if self._serving else None
        reports = (
            ModelReport(
                name=name,
                digest=digest,
                size_bytes=size_bytes,
                nodes=tuple(holders),
                loaded=served is not None and (served.model, served.digest) == (name, digest),
            )
            for (name, digest, size_bytes), holders in sorted(nodes.items())
        )
        return ModelsReport(models=tuple(reports))

    async def plan(self, request: PlanRequest) -> Plan:
        """Who would hold what, or who does if this is in effect; loads nothing."""
        if self._serving and does_for(self._serving.plan, request):
            return self._serving.plan
        plan, _, _ = await self._make_plan(request, lambda _: None)
        return plan

    async def prepare(self, request: PlanRequest) -> AsyncGenerator[PrepareEvent, None]:
        """Brings a model into service; tells what is going on, and at last that it is ready.

        RequestError if this coordinator serves something else. Ending the iteration before the model is in service
        gives everything back.
        """
        events: asyncio.Queue[PrepareEvent | None] = asyncio.Queue()

        def tell(event: PrepareEvent) -> None:
            # Only progress comes in any number, and of that the next word is as good.
            if events.qsize() < MAX_QUEUED_EVENTS or not isinstance(event, NodeProgress):
                events.put_nowait(event)

        # In a task of its own, so that a client that reads slowly keeps nobody else waiting.
        task = self._begin(self._bring_up(request, tell))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
        finally:
            await ended(task)
        yield Ready(plan=PlanReport.of(_outcome(task).plan))

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Piece | Finished, None]:
        """Answers a request, with the model brought up first if it is not in service (any more)."""
        model = await self._model_for(request)
        async with aclosing(model.generate(request)) as pieces:
            async for piece in pieces:
                yield piece

    def stats(self) -> StatsReport | None:
        """How the work of the model in service goes; None while there is none."""
        return self._serving.stats() if self._serving else None

    async def lost(self) -> None:
        """Returns once there is no model in service (any more), and everything it held was given back."""
        await self._given_back.wait()

    @property
    def _search(self) -> Finder:
        assert self._finder is not None, "used outside its block"
        return self._finder

    async def _model_for(self, request: GenerateRequest) -> Serving:
        model = self._serving
        if model is None or model.failed.is_set():
            task = self._begin(self._bring_up(self._wanted_by(request), lambda _: None))
            try:
                await asyncio.wait((task,))
            finally:
                await ended(task)
            model = _outcome(task)
        if request.model and not same_name(model.plan.model, request.model):
            raise other_model(model.plan)
        return model

    def _wanted_by(self, request: GenerateRequest) -> PlanRequest:
        """What to bring up for a request: what was built last if it names that or nothing, else what it names."""
        if self._wanted:
            return self._wanted
        if self._built:
            model, wanted = self._built
            if not request.model or same_name(model, request.model) or same_name(wanted.model, request.model):
                return wanted
        if not request.model:
            remedy = "Name one: `model=` in the request, or `prepare` first."
            raise RequestError("No model is loaded.", remedy=remedy)
        try:
            return PlanRequest(model=request.model)
        except ValueError as error:
            raise RequestError(f"The request is not valid: {error}.") from error

    def _begin(self, work: Coroutine[Any, Any, Done]) -> asyncio.Task[Done]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _bring_up(self, request: PlanRequest, tell: Tell) -> Serving:
        if self._preparing.locked():
            tell(Announcement(text="Waiting for what is under way."))
        async with self._preparing:
            model = self._serving
            if model is None or model.failed.is_set():
                await self._give_back()
                model = await self._serve(self._wanted or request, tell)
            if not does_for(model.plan, request):
                raise other_model(model.plan)
            return model

    async def _serve(self, request: PlanRequest, tell: Tell) -> Serving:
        plan, found, members = await self._make_plan(request, tell)
        tell(Planned(plan=PlanReport.of(plan)))
        async with AsyncExitStack() as stack:
            model = await stack.enter_async_context(
                serving(
                    plan,
                    found.card,
                    {member.facts.node_id: member.addresses for member in members if member.facts},
                    coordinator=self._settings.name,
                    on_progress=lambda node, done, total: tell(_progress(node, "load", done, total)),
                )
            )
            self._in_service = stack.pop_all()
        self._given_back.clear()
        self._serving, self._built = model, (plan.model, request)
        self._begin(self._watch(model))
        return model

    async def _make_plan(self, request: PlanRequest, tell: Tell) -> tuple[Plan, FoundModel, Sequence[Member]]:
        tell(Announcement(text="Looking for nodes."))
        members = await self._search.members()
        usable = [member for member in members if not member.unusable]
        if not usable:
            raise self._nobody(members)
        found = await find_model(
            request.model,
            usable,
            lambda node, done, total: tell(_progress(node, "index", done, total)),
            needed=[stage.node for stage in request.layers],
        )
        notes = (*found.notes, *unusable_notes(members))
        problem = Problem.of(found.card, request, found.nodes, notes)
        return adopt(problem) or make_plan(problem), found, usable

    def _nobody(self, members: Sequence[Member]) -> LayerlineError:
        error = self._search.nothing_found(members)
        if any(member.facts and member.facts.held_by for member in members):
            remedy = "Use that coordinator (--coordinator HOST:PORT), or stop it."
            return NodeHeldError(error.message, remedy=remedy)
        return error

    async def _watch(self, model: Serving) -> None:
        await model.failed.wait()
        async with self._preparing:
            if self._serving is model:
                await self._give_back()

    async def _give_back(self) -> None:
        self._serving = None
        stack, self._in_service = self._in_service, AsyncExitStack()
        try:
            await stack.aclose()
        finally:
            self._given_back.set()


def _outcome(task: asyncio.Task[Serving]) -> Serving:
    """What bringing a model up came to; only the end of the coordinator cancels it while somebody waits."""
    if task.cancelled():
        raise NoCoordinatorError("The coordinator is ending.", remedy="Ask again once it is back.")
    return task.result()


def _progress(node: str, phase: str, done_bytes: int, total_bytes: int) -> NodeProgress:
    return NodeProgress(node=node, phase=phase, done_bytes=done_bytes, total_bytes=total_bytes)
