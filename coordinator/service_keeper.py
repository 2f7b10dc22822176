"""Which model is in service, and how one comes to be: brought up once, for everybody who waits for it.

Owns the model service, one at a time. A model that was given up is brought up anew, from the nodes there are then, for
the next request. Knows nothing of what is asked of the model.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from coordinator.concurrency import ended
from coordinator.made_plan import Tell, untold
from coordinator.model_service import ModelService
from coordinator.plan_maker import PlanMaker
from coordinator.plan_match import does_for, other_model
from layerline.errors import LayerlineError, NoCoordinatorError, OtherModelError, RequestError
from layerline.models.names import same_name
from layerline.plan import Plan
from layerline.plan_request import PlanRequest
from layerline.reports import Announcement, NodeProgress, PlanReport, PrepareEvent, Ready

MAX_QUEUED_EVENTS = 256
MAX_OTHER_NAMES = 64  # of the model in service that are remembered

Done = TypeVar("Done")


class ServiceKeeper:
    """The model in service. `wanted` is what its operator wants: it brings up nothing else, whoever asks first.

    `maker` gives what plans are made with, `make_service` a model service for a request that has not begun.
    """

    def __init__(
        self,
        wanted: PlanRequest | None,
        maker: Callable[[], PlanMaker],
        make_service: Callable[[PlanRequest], ModelService],
    ) -> None:
        self.service: ModelService | None = None  # the last one that served
        self.coming: ModelService | None = None  # one that is brought up
        self._first = self._wanted = wanted
        self._maker = maker
        self._make_service = make_service
        self._tasks: set[asyncio.Task[Any]] = set()  # that bring a model up
        self._preparing = asyncio.Lock()
        self._switching = asyncio.Lock()

    @property
    def wanted(self) -> PlanRequest | None:
        """What is brought up, whoever asks first; None: what is asked for."""
        return self._wanted

    @property
    def plan_in_effect(self) -> Plan | None:
        """The plan by which requests are answered at this moment."""
        return self.service.plan if self.service and self.service.state == "serving" else None

    async def leave(self) -> None:
        """Ends what is being brought up, and the service; everything is given back."""
        try:
            await ended(*self._tasks)
        finally:
            if self.service:
                await self.service.leave()

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

    async def switch(self, request: PlanRequest) -> Plan:
        """Has the model of `request` in service in the place of the one that is, whose answers end.

        Raises what speaks against it, as a PlanError where there is no room for it, and leaves all as it is then. If
        it cannot be loaded in the end, the model before is wanted again. The one that the coordinator was started for
        is had as it was to be then.
        """
        if self._first and same_name(self._first.model, request.model):
            request = self._first
        async with self._switching:
            return await self._switched(request)

    async def _switched(self, request: PlanRequest) -> Plan:
        await self._maker().plan(request, untold)
        before = self._wanted
        async with self._preparing:
            self._wanted = request  # first, for those who bring the model up anew when it is gone
            if self.service:
                message = f"The coordinator was told to serve {request.model} in the place of this model."
                await self.service.leave(OtherModelError(message, remedy="Ask for that one."))
        task = self._begin(self._bring_up(request, untold))
        try:
            await asyncio.wait((task,))
        finally:
            await ended(task)
        try:
            return _outcome(task)[1]
        except LayerlineError:
            self._wanted = before
            raise

    async def service_for(self, model: str) -> ModelService:
        service = self.service
        if service is None or not service.answers:
            task = self._begin(self._bring_up(await self._wanted_by(model), untold))
            try:
                await asyncio.wait((task,))
            finally:
                await ended(task)
            service, _ = _outcome(task)
        assert service.plan is not None
        if model and not await self._is_served(service, model):
            refusal = other_model(service.plan)
            raise OtherModelError(refusal.message, remedy=refusal.remedy)
        return service

    async def as_served(self, service: ModelService, request: PlanRequest) -> PlanRequest:
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
        same = await self._maker().is_of_digest(reference, plan.digest)
        if same and len(service.other_names) < MAX_OTHER_NAMES:
            service.other_names.add(reference)
        return same

    async def _wanted_by(self, model: str) -> PlanRequest:
        """What to bring up for a request: what was built last if it names that or nothing, else what it names."""
        if self._wanted:
            return self._wanted
        service = self.service
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
        if self._preparing.locked() or (self.service and self.service.answers and not self.plan_in_effect):
            tell(Announcement(text="Waiting for what is under way."))
        async with self._preparing:
            service = self.service
            if service:
                with contextlib.suppress(LayerlineError):
                    await service.stands()
            if service is None or service.state != "serving":
                service = self.service = await self._begun(self._wanted or request, tell)
            assert service.plan is not None
            if not does_for(service.plan, await self.as_served(service, request)):
                raise other_model(service.plan)
            return service, service.plan

    async def _begun(self, wanted: PlanRequest, tell: Tell) -> ModelService:
        """A new model service, which serves; ended with whoever waits for that."""
        service = self.coming = self._make_service(wanted)
        service.begin(tell)
        try:
            await service.stands()
        except BaseException:
            await service.leave()
            raise
        finally:
            self.coming = None
        return service


def _outcome(task: asyncio.Task[tuple[ModelService, Plan]]) -> tuple[ModelService, Plan]:
    """What bringing a model up came to; only the end of the coordinator cancels it while somebody waits."""
    if task.cancelled():
        raise NoCoordinatorError("The coordinator is ending.", remedy="Ask again once it is back.")
    return task.result()
