"""The coordinator: finds nodes, plans, brings a model into service, answers. One model at a time.

Owns the search for nodes and the model in service; each part's own work is done in the modules it calls. A
pipeline that broke is given back at once, and built anew, from the nodes there are then, for the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import PurePath
from typing import Self

from coordinator.catalogue import GGUF_SUFFIX, FoundModel, find_model
from coordinator.discovery.browser import Browser
from coordinator.discovery.finder import Finder
from coordinator.discovery.membership import Member, unusable_notes
from coordinator.no_mdns import NoMdns
from coordinator.node_client import describe
from coordinator.planning.adoption import adopt
from coordinator.planning.planner import make_plan
from coordinator.serving import Serving, serving
from coordinator.settings import CoordinatorSettings
from layerline.errors import LayerlineError, NodeHeldError, NodeLostError, RequestError
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
from layerline.version import WIRE_VERSION, __version__

MAX_QUEUED_EVENTS = 256

Tell = Callable[[PrepareEvent], None]


class Coordinator:
    """Used as an `async with` block, which searches for nodes from its beginning and gives everything back.

    `address` is where clients reach it, for what it says of itself.
    """

    def __init__(self, settings: CoordinatorSettings, *, address: str) -> None:
        self._settings = settings
        self._address = address
        self._life = AsyncExitStack()
        self._preparing = asyncio.Lock()
        self._in_service = AsyncExitStack()
        self._serving: Serving | None = None
        self._request: PlanRequest | None = None  # what was asked for last, to be built anew after a loss
        self._finder: Finder | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        lookout = await self._life.enter_async_context(Browser()) if self._settings.mdns else NoMdns(loop.time())
        self._finder = Finder(lookout, self._settings.nodes, describe, coordinator=self._settings.name)
        return self

    async def __aexit__(self, *failure: object) -> None:
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
        for member in await self._search.members():
            for listing in member.facts.models if member.facts and not member.unusable else ():
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
        if self._serving and self._does_for(self._serving.plan, request):
            return self._serving.plan
        plan, _, _ = await self._make_plan(request, lambda _: None)
        return plan

    async def prepare(self, request: PlanRequest) -> AsyncGenerator[PrepareEvent, None]:
        """Brings a model into service; tells what is going on, and at last that it is ready.

        RequestError if this coordinator serves something else; ending the iteration gives everything back.
        """
        async with self._preparing:
            if self._serving is None:
                async with aclosing(self._bring_up(request)) as events:
                    async for event in events:
                        yield event
            plan = self._served_plan()
            if not self._does_for(plan, request):
                raise _other_model(plan)
        yield Ready(plan=PlanReport.of(plan))

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Piece | Finished, None]:
        """Answers a request, with the model brought up first if it is not in service (any more)."""
        model = await self._model_for(request)
        async with aclosing(model.generate(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def lost(self) -> None:
        """Returns once there is no model in service (any more), and everything it held was given back."""
        while self._serving:
            await self._serving.ended.wait()

    @property
    def _search(self) -> Finder:
        assert self._finder is not None, "used outside its block"
        return self._finder

    async def _model_for(self, request: GenerateRequest) -> Serving:
        if self._serving is None:
            wanted = self._request
            if request.model and not (wanted and _names(wanted.model, request.model)):
                wanted = PlanRequest(model=request.model)
            if wanted is None:
                remedy = "Name one: `model=` in the request, or `prepare` first."
                raise RequestError("No model is loaded.", remedy=remedy)
            async with aclosing(self.prepare(wanted)) as events:
                async for _ in events:
                    pass
        plan = self._served_plan()
        if request.model and not _names(plan.model, request.model):
            raise _other_model(plan)
        assert self._serving is not None
        return self._serving

    def _served_plan(self) -> Plan:
        if self._serving is None:
            raise NodeLostError("The model was lost as soon as it was loaded.", remedy="Try again.")
        return self._serving.plan

    async def _bring_up(self, request: PlanRequest) -> AsyncGenerator[PrepareEvent, None]:
        events: asyncio.Queue[PrepareEvent | None] = asyncio.Queue()

        def tell(event: PrepareEvent) -> None:
            # Only progress comes in any number, and of that the next word is as good.
            if events.qsize() < MAX_QUEUED_EVENTS or not isinstance(event, NodeProgress):
                events.put_nowait(event)

        async def work() -> None:
            try:
                await self._serve(request, tell)
            finally:
                events.put_nowait(None)

        task = asyncio.create_task(work())
        try:
            while (event := await events.get()) is not None:
                yield event
            await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
                await self._give_back()

    async def _serve(self, request: PlanRequest, tell: Tell) -> None:
        plan, found, members = await self._make_plan(request, tell)
        tell(Planned(plan=PlanReport.of(plan)))
        async with AsyncExitStack() as stack:
            model = await stack.enter_async_context(
                serving(
                    plan,
                    found.card,
                    {member.facts.node_id: _addresses(member) for member in members if member.facts},
                    coordinator=self._settings.name,
                    on_progress=lambda node, done, total: tell(_progress(node, "load", done, total)),
                )
            )
            watching = asyncio.create_task(self._watch(model))
            stack.callback(watching.cancel)
            self._in_service = stack.pop_all()
        self._serving, self._request = model, request

    async def _make_plan(self, request: PlanRequest, tell: Tell) -> tuple[Plan, FoundModel, Sequence[Member]]:
        tell(Announcement(text="Looking for nodes."))
        members = await self._search.members()
        usable = [member for member in members if not member.unusable]
        if not usable:
            raise self._nobody(members)
        found = await find_model(
            request.model, usable, lambda node, done, total: tell(_progress(node, "index", done, total))
        )
        card = found.card
        plan = adopt(card.spec, card.digest, request, found.nodes)
        if plan is None:
            plan = make_plan(card.spec, card.name, card.digest, request, found.nodes)
        return replace(plan, notes=(*plan.notes, *found.notes, *unusable_notes(members))), found, usable

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
                await asyncio.shield(asyncio.create_task(self._give_back()))

    async def _give_back(self) -> None:
        self._serving = None
        stack, self._in_service = self._in_service, AsyncExitStack()
        await stack.aclose()

    def _does_for(self, plan: Plan, request: PlanRequest) -> bool:
        """Whether the plan in effect is what `request` asks for."""
        layers = tuple((stage.node, stage.spec.first_layer, stage.spec.last_layer) for stage in plan.stages)
        ids = tuple((stage.node_id, stage.spec.first_layer, stage.spec.last_layer) for stage in plan.stages)
        wanted = tuple((stage.node, stage.first_layer, stage.last_layer) for stage in request.layers)
        return (
            _names(plan.model, request.model)
            and plan.dtype == request.dtype
            and request.context_tokens <= plan.context_tokens
            and (not wanted or wanted in (layers, ids))
        )


def _names(model: str, reference: str) -> bool:
    """Whether `reference`, a name or a path, with or without a GGUF file's suffix, is the model of that name."""
    return model.removesuffix(GGUF_SUFFIX) in (
        reference.removesuffix(GGUF_SUFFIX),
        PurePath(reference).name.removesuffix(GGUF_SUFFIX),
    )


def _other_model(plan: Plan) -> RequestError:
    stages = ", ".join(f"{stage.node}={stage.spec.first_layer}-{stage.spec.last_layer}" for stage in plan.stages)
    return RequestError(
        f"This coordinator serves {plan.model} in {plan.dtype} with a context of {plan.context_tokens} ({stages}).",
        remedy="Ask for that, or start another coordinator on other nodes.",
    )


def _addresses(member: Member) -> tuple[str, ...]:
    """Where a member's machine can be met: first where it answered us, then wherever it says it listens."""
    assert member.facts is not None
    return tuple(dict.fromkeys((member.address, *member.facts.addresses)))


def _progress(node: str, phase: str, done_bytes: int, total_bytes: int) -> NodeProgress:
    return NodeProgress(node=node, phase=phase, done_bytes=done_bytes, total_bytes=total_bytes)
