"""Who answers a command: the coordinator that was named, one that was found, or one of its own for the time being."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from coordinator.embedded import Embedded, embedded_coordinator
from coordinator.plan_maker import Availability
from coordinator.settings import CoordinatorSettings
from layerline.async_client import AsyncClient
from layerline.cli.options import Finding
from layerline.coordinator_search import search_coordinators
from layerline.errors import NoCoordinatorError, WireVersionError
from layerline.mdns import CoordinatorAdvert
from layerline.models.names import listed_name, path_here, same_name

# What was answered to somebody within the last second is answered anew only a second later, and some tenths later still
# on a busy machine. Only where a node is held, or none answers, does a command wait for so long.
SEARCH_TIMEOUT_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A client that is connected, and how its coordinator knows the model that was asked for."""

    client: AsyncClient
    model: str


@asynccontextmanager
async def open_session(finding: Finding, model: str = "") -> AsyncIterator[Session]:
    """A session for the time of a block. With a `model`, a coordinator that serves other weights is passed over."""
    async with AsyncExitStack() as stack:
        if finding.coordinator:
            client = await stack.enter_async_context(AsyncClient(finding.coordinator))
            yield Session(client=client, model=await name_there(client, model))
        else:
            yield await _found_or_own(stack, finding, model)


async def _found_or_own(stack: AsyncExitStack, finding: Finding, model: str) -> Session:
    """A coordinator that was found, by mDNS or by the nodes that it holds, whichever is sooner; else an own one."""
    searching = asyncio.create_task(_search(finding, model))
    stack.push_async_callback(_ended, searching)
    async with AsyncExitStack() as own:
        settings = CoordinatorSettings(nodes=finding.nodes, mdns=finding.mdns)
        embedded = await own.enter_async_context(embedded_coordinator(settings))
        available = await _availability(searching, embedded, model)
        for address in available.coordinators if available else ():
            if session := await _session_at(stack, (address,), model, connect_s=SEARCH_TIMEOUT_S):
                return session
        for advert in () if available and available.free else await searching:
            if session := await _session_at(stack, advert.addresses, model):
                return session
        stack.push_async_exit(own.pop_all())
    return Session(client=await stack.enter_async_context(AsyncClient(embedded.address)), model=model)


async def _session_at(
    stack: AsyncExitStack, addresses: Sequence[str], model: str, connect_s: float | None = None
) -> Session | None:
    """A session with the coordinator there; nothing if there is none (any more), or it serves other weights."""
    async with AsyncExitStack() as held:
        try:
            async with asyncio.timeout(connect_s):
                client = await held.enter_async_context(AsyncClient(addresses))
                served = (await client.describe()).model
            if model and served and not serves(served, model) and not await _has_loaded(client, model):
                return None
            name = await name_there(client, model)
        except (NoCoordinatorError, WireVersionError, TimeoutError):
            return None
        stack.push_async_exit(held.pop_all())
        return Session(client=client, model=name)


async def _search(finding: Finding, model: str) -> Sequence[CoordinatorAdvert]:
    if not finding.mdns or finding.nodes:  # who names nodes means to use them here
        return ()
    found = await search_coordinators(SEARCH_TIMEOUT_S, lambda advert: not model or serves(advert.model, model))
    return choose(found.speakable(), model)


async def _availability(
    searching: asyncio.Task[Sequence[CoordinatorAdvert]], embedded: Embedded, model: str
) -> Availability | None:
    """What the nodes say of who holds them; nothing if `searching` ends before they do."""
    asking = asyncio.ensure_future(embedded.availability(model))
    try:
        await asyncio.wait((searching, asking), return_when=asyncio.FIRST_COMPLETED)
        return None if searching.done() else await asking
    finally:
        await _ended(asking)


async def _ended(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def choose(adverts: Sequence[CoordinatorAdvert], model: str) -> Sequence[CoordinatorAdvert]:
    """The coordinators that may be asked for `model`, best first.

    Those that serve it by that name, those that may have it under another one, those that are free.
    """
    if not model:
        return adverts
    serving = [advert for advert in adverts if serves(advert.model, model)]
    free = [advert for advert in adverts if not advert.model]
    busy = [advert for advert in adverts if advert not in serving and advert not in free]
    return [*serving, *busy, *free]


def serves(served: str, reference: str) -> bool:
    """Whether a coordinator that serves the model named `served` serves what `reference`, a name or path, means."""
    return bool(served) and same_name(served, reference)


async def _has_loaded(client: AsyncClient, reference: str) -> bool:
    """Whether what `reference` means is what a coordinator serves, under whatever name it does."""
    loaded = [model.name for model in (await client.models()).models if model.loaded]
    return listed_name(reference, loaded) is not None


async def name_there(client: AsyncClient, reference: str) -> str:
    """What the nodes of another coordinator call the model that `reference` means: a path says nothing elsewhere."""
    path = path_here(reference)
    if path is None:
        return reference
    names = [model.name for model in (await client.models()).models]
    return listed_name(reference, names) or path
