"""`layerline coordinator`: a coordinator that stays up, keeps a model loaded and serves it to the network."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from coordinator.coordinator import Coordinator
from coordinator.http.activity import Activity
from coordinator.http.app import make_app
from coordinator.http.live import Live
from coordinator.http.server import http_served
from coordinator.service import CoordinatorService
from coordinator.settings import CoordinatorSettings
from layerline.errors import LayerlineError, PortInUseError
from layerline.hosting.adverts import advertise, look_interval, register_renamed, sockets_for
from layerline.hosting.descriptors import raise_descriptor_limit
from layerline.hosting.end_signals import LastResort, told_by_signals
from layerline.hosting.ports import Listening, listen
from layerline.mdns import CoordinatorAdvert
from layerline.plan import form_in_words
from layerline.plan_request import PlanRequest
from layerline.reports import Announcement, Planned, PlanReport, PrepareEvent, Ready
from layerline.rpc.channels import COORDINATOR_OPTIONS, make_server
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import coordinator_pb2_grpc
from layerline.version import WIRE_VERSION

CALLS_DEADLINE_S = 1.0  # for the answers that are being given, at the end
END_DEADLINE_S = 4.5
RETRY_INTERVAL_S = 10.0

log = logging.getLogger(__name__)


def run_coordinator(settings: CoordinatorSettings, request: PlanRequest, host: str, port: int) -> int:
    """Serves the model of `request` until SIGTERM or SIGINT; returns the exit code. A second signal ends it at once.

    Raises LayerlineError if it cannot listen, or cannot bring the model up at its start. If the model is lost
    later, it is brought up again as soon as the nodes allow.
    """
    raise_descriptor_limit()
    last_resort = LastResort(END_DEADLINE_S)
    asyncio.run(_run(settings, request, host, port, last_resort))
    last_resort.call_off()
    return 0


async def _run(
    settings: CoordinatorSettings, request: PlanRequest, host: str, port: int, last_resort: LastResort
) -> None:
    transport = Transport()
    server = make_server(options=COORDINATOR_OPTIONS)
    listening = listen(functools.partial(transport.listen, server), host, [port])
    address = next(iter(listening.addresses()), listening.told_address)
    async with Coordinator(settings, transport, address=address, wanted=request) as coordinator:
        coordinator_pb2_grpc.add_CoordinatorServicer_to_server(CoordinatorService(coordinator), server)
        await server.start()
        log.info("Coordinator %s listens on %s.", settings.name, ", ".join(listening.addresses()))
        activity = Activity()

        async def drained() -> None:
            await asyncio.gather(activity.drain(settings.drain_s), server.stop(settings.drain_s))

        try:
            async with _http(settings, coordinator, activity):
                with told_by_signals() as told:
                    await _until_told(told, settings, coordinator, request, listening, drained, last_resort)
        finally:
            await server.stop(CALLS_DEADLINE_S)


@asynccontextmanager
async def _http(settings: CoordinatorSettings, coordinator: Coordinator, activity: Activity) -> AsyncIterator[None]:
    """HTTP is served for the time of the block, if it is wanted; at an address that nobody chose, if that is free."""
    async with AsyncExitStack() as stack:
        if settings.http is not None:
            live = await stack.enter_async_context(Live(coordinator, activity))
            served = http_served(settings.http, make_app(coordinator, settings.http, activity, live))
            try:
                address = await stack.enter_async_context(served)
                log.info("The page is at %s, the API of OpenAI at %s/v1.", address, address)
            except PortInUseError as error:
                if settings.http.chosen:
                    raise
                log.warning("%s", error)
        yield


async def _until_told(
    told: asyncio.Event,
    settings: CoordinatorSettings,
    coordinator: Coordinator,
    request: PlanRequest,
    listening: Listening,
    drained: Callable[[], Awaitable[None]],
    last_resort: LastResort,
) -> None:
    """Keeps the model up and the advert true until told to end, and drained then; raises what must end the program."""
    parts = [_keep_up(coordinator, request)]
    if settings.mdns:
        parts.append(_advertise(settings, coordinator, listening))
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in parts]
            await told.wait()
            await drained()
            last_resort.begin()
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _keep_up(coordinator: Coordinator, request: PlanRequest) -> None:
    """Brings the model up, and again whenever it is lost; only the first time must succeed."""
    await _bring_up(coordinator, request)
    while True:
        await coordinator.lost()
        log.warning("The model is no longer loaded; it is brought up again.")
        while coordinator.facts().model == "":
            try:
                await _bring_up(coordinator, coordinator.wanted or request)
            except LayerlineError as error:
                log.warning("%s Trying again in %.0f s.", error, RETRY_INTERVAL_S)
                await asyncio.sleep(RETRY_INTERVAL_S)


async def _bring_up(coordinator: Coordinator, request: PlanRequest) -> None:
    async with aclosing(coordinator.prepare(request)) as events:
        async for event in events:
            _tell(event)


async def _advertise(settings: CoordinatorSettings, coordinator: Coordinator, listening: Listening) -> None:
    def advert() -> CoordinatorAdvert:
        return CoordinatorAdvert(
            name=settings.name,
            model=coordinator.facts().model,
            wire_version=WIRE_VERSION,
            addresses=listening.addresses(),
        )

    await advertise(
        advert,
        register_renamed,
        instead=f"Give clients --coordinator {coordinator.facts().address}.",
        open_sockets=sockets_for(listening.host),
        next_look=look_interval,
    )


def _tell(event: PrepareEvent) -> None:
    if isinstance(event, Announcement):
        log.info("%s", event.text)
    elif isinstance(event, Planned):
        log.info("%s", _plan_line(event.plan))
        for note in event.plan.notes:
            log.info("%s", note)
    elif isinstance(event, Ready):
        log.info("Ready: %s with a context of %d tokens.", event.plan.model, event.plan.context_tokens)


def _plan_line(plan: PlanReport) -> str:
    stages = ", ".join(f"{stage.node} layers {stage.first_layer} to {stage.last_layer}" for stage in plan.stages)
    return f"{plan.model}, weights {form_in_words(plan.weights)}: {stages}."
