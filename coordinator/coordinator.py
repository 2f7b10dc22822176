"""The coordinator: finds nodes, plans, has a model in service, answers. One model at a time.

The face that every service shows: gRPC's, HTTP's and the one inside a command. Owns the search for nodes; the model is
`coordinator.service_keeper`'s, and each part's own work is done in the modules it calls.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Self

from coordinator.discovery.browser import Browser, NoMdns
from coordinator.discovery.finder import Finder
from coordinator.discovery.members import Member
from coordinator.discovery.search import LONGEST_S
from coordinator.loading import Loading
from coordinator.made_plan import untold
from coordinator.model_life import ModelState
from coordinator.model_service import ModelService
from coordinator.node_client import NodeClient
from coordinator.pipeline import pipeline
from coordinator.plan_maker import Availability, PlanMaker
from coordinator.plan_match import does_for
from coordinator.service_bounds import ServiceBounds
from coordinator.service_keeper import ServiceKeeper
from coordinator.settings import CoordinatorSettings
from layerline.addresses import split_address
from layerline.answer import AnswerItem
from layerline.embedding import Embedding, EmbeddingFinished, EmbedRequest
from layerline.hold import HoldHello
from layerline.plan import Plan
from layerline.plan_request import PlanRequest
from layerline.reports import (
    CoordinatorFacts,
    ModelReport,
    ModelsReport,
    NodesReport,
    PrepareEvent,
)
from layerline.requests import GenerateRequest
from layerline.rpc.transport import Transport
from layerline.scoring import ScoreRequest, ScoringFinished, WindowScores
from layerline.stats_report import StatsReport
from layerline.version import WIRE_VERSION, __version__


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
        self._address = address
        self._open_pipeline = functools.partial(pipeline, transport=transport, deadlines=self._bounds.hold)
        self._nodes = NodeClient(transport)
        self._hello = HoldHello.of(settings.name, _port_of(address))
        self._life = AsyncExitStack()
        self._keeper = ServiceKeeper(wanted, lambda: self._maker, self._make_service)
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
            await self._keeper.leave()

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

    @property
    def serves(self) -> bool:
        """Whether a request would be answered at once."""
        return self._keeper.plan_in_effect is not None

    @property
    def last_plan(self) -> Plan | None:
        """The plan by which requests are answered, or were until a stage was lost that is being replaced."""
        return self._service.plan if self._service and self._service.answers else None

    @property
    def context_tokens(self) -> int:
        """Of the model in service; 0 while there is none."""
        return self._service.plan.context_tokens if self._service and self._service.plan else 0

    @property
    def wanted(self) -> PlanRequest | None:
        """What it is to have in service, if it is to have something of its own accord."""
        return self._keeper.wanted

    @property
    def state(self) -> ModelState:
        """How the model in service stands, or the one that is brought up, in the words of `coordinator.model_life`."""
        latest = self._keeper.coming or self._service
        return latest.state if latest else "absent"

    @property
    def loading(self) -> Loading | None:
        """How far a model is that is being brought up; None if none ever was."""
        latest = self._keeper.coming or self._service
        return latest.loading if latest else None

    async def nodes(self) -> NodesReport:
        """Every node there is, usable or not."""
        return (await self.look())[0]

    async def look(self, deadline_s: float = LONGEST_S) -> tuple[NodesReport, ModelsReport]:
        """Every node there is, usable or not, and every model that a usable one has, by the end of the deadline."""
        members = await self._search.members(wait_for_starting=False, deadline_s=deadline_s)
        nodes = NodesReport(nodes=tuple(member.report for member in members), searched=self._search.searched)
        return nodes, self._models_of(members)

    async def availability(self, model: str) -> Availability:
        """Whether nodes are free to serve `model`, or else which coordinators hold them; as soon as that is known."""
        return await self._maker.availability(model)

    async def models(self) -> ModelsReport:
        """Every model that a usable node has; files that differ under one name are listed apart."""
        return (await self.look())[1]

    def _models_of(self, members: Sequence[Member]) -> ModelsReport:
        nodes: dict[tuple[str, str, int], list[str]] = {}
        for member in members:
            for listing in member.models:
                nodes.setdefault((listing.name, listing.digest, listing.size_bytes), []).append(member.name)
        served = self._keeper.plan_in_effect
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
        service, plan = self._service, self._keeper.plan_in_effect
        if service and plan and does_for(plan, await self._keeper.as_served(service, request)):
            return plan
        return (await self._maker.plan(request, untold)).plan

    def prepare(self, request: PlanRequest) -> AsyncGenerator[PrepareEvent, None]:
        """Brings a model into service; tells what is going on, and at last that it is ready.

        RequestError if this coordinator serves something else. Ending the iteration before the model is in service
        gives everything back.
        """
        return self._keeper.prepare(request)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AnswerItem, None]:
        """Answers a request, with the model brought up first if it is not in service (any more)."""
        service = await self._keeper.service_for(request.model)
        async with aclosing(service.generate(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def prompt_ids(self, request: GenerateRequest) -> tuple[int, ...]:
        """The token ids of a request's prompt, as its answer would go on from them."""
        return await (await self._keeper.service_for(request.model)).prompt_ids(request)

    async def text_of(self, request: GenerateRequest) -> str:
        """The text of a request's token ids; control tokens have none."""
        return (await self._keeper.service_for(request.model)).text_of(request)

    async def score(self, request: ScoreRequest) -> AsyncGenerator[WindowScores | ScoringFinished, None]:
        """Scores a text, with the model brought up first if it is not in service (any more)."""
        service = await self._keeper.service_for(request.model)
        async with aclosing(service.score(request)) as windows:
            async for window in windows:
                yield window

    async def embed(self, request: EmbedRequest) -> AsyncGenerator[Embedding | EmbeddingFinished, None]:
        """Texts as vectors, with the model brought up first if it is not in service (any more)."""
        service = await self._keeper.service_for(request.model)
        async with aclosing(service.embed(request)) as embeddings:
            async for each in embeddings:
                yield each

    async def switch(self, request: PlanRequest) -> Plan:
        """Has another model in service, in the place of the one that is; raises what speaks against it."""
        return await self._keeper.switch(request)

    def stop(self, number: int) -> bool:
        """Ends the answer that has the request of that number in `stats`, with an error; False if there is none."""
        return self._service is not None and self._service.stop(number)

    def stats(self) -> StatsReport | None:
        """How the work of the model in service goes; None while there is none."""
        return self._service.stats() if self._service and self._service.answers else None

    async def lost(self) -> None:
        """Returns once there is no model in service (any more), and everything it held was given back."""
        if self._service:
            await self._service.gone()

    @property
    def _service(self) -> ModelService | None:
        return self._keeper.service

    @property
    def _maker(self) -> PlanMaker:
        return PlanMaker(self._search, functools.partial(self._nodes.open_model, no_growth_s=self._bounds.no_growth_s))

    @property
    def _search(self) -> Finder:
        assert self._finder is not None, "used outside its block"
        return self._finder

    def _make_service(self, wanted: PlanRequest) -> ModelService:
        return ModelService(
            wanted,
            self._maker,
            hello=self._hello,
            bounds=self._bounds,
            open_pipeline=self._open_pipeline,
            chat_template=self._settings.chat_template,
        )


def _port_of(address: str) -> int:
    """The port on which clients reach it; 0 if only those of this machine do."""
    return 0 if address.startswith("unix:") else split_address(address)[1]
