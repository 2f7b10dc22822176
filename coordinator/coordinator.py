"""The coordinator: finds nodes, plans, has a model in service, answers. One model at a time.

Owns the search for nodes and the model service; each part's own work is done in the modules it calls. A model that was
given up is brought up anew, from the nodes there are then, for the next request.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any, Self, TypeVar

from coordinator.concurrency import ended
from coordinator.discovery.browser import Browser, NoMdns
from coordinator.discovery.finder import Finder
from coordinator.made_plan import Tell, untold
from coordinator.model_service import ModelService, ServiceBounds
from coordinator.node_client import NodeClient
from coordinator.pipeline import pipeline
from coordinator.plan_maker import Availability, PlanMaker
from coordinator.plan_match import does_for, other_model
from coordinator.settings import CoordinatorSettings
from layerline.addresses import split_address
from layerline.errors import LayerlineError, NoCoordinatorError, RequestError
from layerline.hold import HoldHello
from layerline.models.names import same_name
from layerline.plan import Plan
from layerline.plan_request import PlanRequest
from layerline.reports import (
    Announcement,
    CoordinatorFacts,
    ModelReport,
    ModelsReport,
    NodeProgress,
    NodesReport,
    PlanReport,
    PrepareEvent,
    Ready,
)
from layerline.requests import Finished, GenerateRequest, Piece
from layerline.rpc.transport import Transport
from layerline.scoring import ScoreRequest, ScoringFinished, WindowScores
from layerline.stats_report import StatsReport
from layerline.version import WIRE_VERSION, __version__

MAX_QUEUED_EVENTS = 256
MAX_OTHER_NAMES = 64  # of the model in service that are remembered

Done = TypeVar("Done")


class Coordinator:
    """Used as an `async with` block, which searches for nodes from its beginning and gives everything back.

    `address` is where clients reach it, for what it says of itself.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        transport: Transport,
        *,
        address: str,
        wanted: PlanRequest | None = None,
        bounds: ServiceBounds | None = None,
    ) -> None:
        """`wanted` is what its operator started it for: it brings up nothing else, whoever asks first."""
        self._settings = settings
        self._bounds = bounds or ServiceBounds()
        self._wanted = wanted
        self._address = address
        self._open_pipeline = functools.partial(pipeline, transport=transport, deadlines=self._bounds.hold)
        self._nodes = NodeClient(transport)
        self._hello = HoldHello.of(settings.name, _port_of(address))
        self._life = AsyncExitStack()
        self._tasks: set[asyncio.Task[Any]] = set()  # that bring a model up
        self._preparing = asyncio.Lock()
        self._service: ModelService | None = None  # the last one that served
        self._finder: Finder | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as life:
            lookout = await life.enter_async_context(Browser()) if self._settings.mdns else NoMdns(loop.time())
            self._finder = Finder(lookout, self._settings.nodes, self._nodes.describe, instance=self._hello.instance)
            self._life = life.pop_all()
        return self

    async def __aexit__(self, *failure: object) -> None:
        async with self._life:
            try:
                await ended(*self._tasks)
            finally:
                if self._service:
                    await self._service.leave()

    def facts(self) -> CoordinatorFacts:
        """Who this is; the model counts while requests for it are taken."""
        service = self._service
        model = service.plan.model if service and service.plan and service.answers else ""
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

    async def availability(self, model: str) -> Availability:
        """Whether nodes are free to serve `model`, or else which coordinators hold them; as soon as that is known."""
        return await self._maker.availability(model)

    async def models(self) -> ModelsReport:
        """Every model that a usable node has; files that differ under one name are listed apart."""
        nodes: dict[tuple[str, str, int], list[str]] = {}
        for member in await self._search.members(wait_for_starting=False):
            for listing in member.models:
                nodes.setdefault((listing.name, listing.digest, listing.size_bytes), []).append(member.name)
        served = self._plan_in_effect
        reports = (
            ModelReport(
                name=name,
                digest=digest,
                size_bytes=size_bytes,
                nodes=tuple(holders),
                loaded=served is not None and served.digest == digest,
            )
            for (name, digest, size_bytes), holders in sorted(nodes.items())
        )
        return ModelsReport(models=tuple(reports))

    async def plan(self, request: PlanRequest) -> Plan:
        """Who would hold what, or who does if this is in effect; loads nothing."""
        service = self._service
        if service and (plan := self._plan_in_effect) and does_for(plan, await self._as_served(service, request)):
            return plan
        return (await self._maker.plan(request, untold)).plan

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
        yield Ready(plan=PlanReport.of(_outcome(task)[1]))

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Piece | Finished, None]:
        """Answers a request, with the model brought up first if it is not in service (any more)."""
        service = await self._service_for(request.model)
        async with aclosing(service.generate(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def score(self, request: ScoreRequest) -> AsyncGenerator[WindowScores | ScoringFinished, None]:
        """Scores a text, with the model brought up first if it is not in service (any more)."""
        service = await self._service_for(request.model)
        async with aclosing(service.score(request)) as windows:
            async for window in windows:
                yield window

    def stats(self) -> StatsReport | None:
        """How the work of the model in service goes; None while there is none."""
        return self._service.stats() if self._service and self._service.answers else None

    async def lost(self) -> None:
        """Returns once there is no model in service (any more), and everything it held was given back."""
        if self._service:
            await self._service.gone()

    @property
    def _plan_in_effect(self) -> Plan | None:
        return self._service.plan if self._service and self._service.state == "serving" else None

    @property
    def _maker(self) -> PlanMaker:
        return PlanMaker(self._search, functools.partial(self._nodes.open_model, no_growth_s=self._bounds.no_growth_s))

    @property
    def _search(self) -> Finder:
        assert self._finder is not None, "used outside its block"
        return self._finder

    async def _service_for(self, model: str) -> ModelService:
        service = self._service
        if service is None or not service.answers:
            task = self._begin(self._bring_up(await self._wanted_by(model), untold))
            try:
                await asyncio.wait((task,))
            finally:
                await ended(task)
            service, _ = _outcome(task)
        assert service.plan is not None
        if model and not await self._is_served(service, model):
            raise other_model(service.plan)
        return service

    async def _as_served(self, service: ModelService, request: PlanRequest) -> PlanRequest:
        """`request` in the name under which `service` has its model, if that is what it asks for under any name."""
        assert service.plan is not None
        served = await self._is_served(service, request.model)
        return replace(request, model=service.plan.model) if served else request

    async def _is_served(self, service: ModelService, reference: str) -> bool:
        """Whether `reference` means the model of `service`: by its name or, if that is another one, by its weights."""
        plan = service.plan
        assert plan is not None
        if any(same_name(name, reference) for name in (plan.model, *service.other_names)):
            return True
        same = await self._maker.is_of_digest(reference, plan.digest)
        if same and len(service.other_names) < MAX_OTHER_NAMES:
            service.other_names.add(reference)
        return same

    async def _wanted_by(self, model: str) -> PlanRequest:
        """What to bring up for a request: what was built last if it names that or nothing, else what it names."""
        if self._wanted:
            return self._wanted
        service = self._service
        if service and service.plan and (not model or await self._is_served(service, model)):
            return service.wanted
        if not model:
            remedy = "Name one: `model=` in the request, or `prepare` first."
            raise RequestError("No model is loaded.", remedy=remedy)
        try:
            return PlanRequest(model=model)
        except ValueError as error:
            raise RequestError(f"The request is not valid: {error}.") from error

    def _begin(self, work: Coroutine[Any, Any, Done]) -> asyncio.Task[Done]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _bring_up(self, request: PlanRequest, tell: Tell) -> tuple[ModelService, Plan]:
        """The model of `request` in service, and the plan that is in effect; brought up if there is none."""
        if self._preparing.locked() or (self._service and self._service.answers and not self._plan_in_effect):
            tell(Announcement(text="Waiting for what is under way."))
        async with self._preparing:
            service = self._service
            if service:
                with contextlib.suppress(LayerlineError):
                    await service.stands()
            if service is None or service.state != "serving":
                service = self._service = await self._begun(self._wanted or request, tell)
            assert service.plan is not None
            if not does_for(service.plan, await self._as_served(service, request)):
                raise other_model(service.plan)
            return service, service.plan

    async def _begun(self, wanted: PlanRequest, tell: Tell) -> ModelService:
        """A new model service, which serves; ended with whoever waits for that."""
        service = ModelService(
            wanted, self._maker, hello=self._hello, bounds=self._bounds, open_pipeline=self._open_pipeline
        )
        service.begin(tell)
        try:
            await service.stands()
        except BaseException:
            await service.leave()
            raise
        return service


def _port_of(address: str) -> int:
    """The port on which clients reach it; 0 if only those of this machine do."""
    return 0 if address.startswith("unix:") else split_address(address)[1]


def _outcome(task: asyncio.Task[tuple[ModelService, Plan]]) -> tuple[ModelService, Plan]:
    """What bringing a model up came to; only the end of the coordinator cancels it while somebody waits."""
    if task.cancelled():
        raise NoCoordinatorError("The coordinator is ending.", remedy="Ask again once it is back.")
    return task.result()
