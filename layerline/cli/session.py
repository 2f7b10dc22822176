"""Who answers a command: the coordinator that was named, one that was found, or one of its own for the time being."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath

from coordinator.embedded import embedded_coordinator
from coordinator.settings import CoordinatorSettings
from layerline.async_client import AsyncClient
from layerline.cli.options import Finding
from layerline.coordinator_search import search_coordinators
from layerline.errors import NoCoordinatorError, WireVersionError
from layerline.mdns import CoordinatorAdvert

# What was answered to somebody within the last second is answered anew only a second later, and some tenths later still
# on a busy machine. Every command without a coordinator waits for so long; its own one looks for nodes meanwhile.
SEARCH_TIMEOUT_S = 2.0
GGUF_SUFFIX = ".gguf"


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A client that is connected, and how its coordinator knows the model that was asked for."""

    client: AsyncClient
    model: str


@asynccontextmanager
async def open_session(finding: Finding, model: str = "") -> AsyncIterator[Session]:
    """A session for the time of a block. With a `model`, a coordinator that serves another one is passed over."""
    async with AsyncExitStack() as stack:
        if finding.coordinator:
            client = await stack.enter_async_context(AsyncClient(finding.coordinator))
            yield Session(client=client, model=shared_name(model))
        else:
            yield await _found_or_own(stack, finding, model)


async def _found_or_own(stack: AsyncExitStack, finding: Finding, model: str) -> Session:
    searching = asyncio.create_task(_search(finding, model))
    stack.callback(searching.cancel)
    async with AsyncExitStack() as own:
        settings = CoordinatorSettings(nodes=finding.nodes, mdns=finding.mdns)
        address = await own.enter_async_context(embedded_coordinator(settings))
        for advert in await searching:
            try:
                client = await stack.enter_async_context(AsyncClient(advert.addresses))
            except (NoCoordinatorError, WireVersionError):  # its advert outlived it
                continue
            return Session(client=client, model=shared_name(model))
        stack.push_async_exit(own.pop_all())
    return Session(client=await stack.enter_async_context(AsyncClient(address)), model=model)


async def _search(finding: Finding, model: str) -> Sequence[CoordinatorAdvert]:
    if not finding.mdns or finding.nodes:  # who names nodes means to use them here
        return ()
    found = await search_coordinators(SEARCH_TIMEOUT_S, lambda advert: not model or serves(advert.model, model))
    return choose(found.speakable(), model)


def choose(adverts: Sequence[CoordinatorAdvert], model: str) -> Sequence[CoordinatorAdvert]:
    """The coordinators that may be asked for `model`, best first: those that serve it, then those that are free."""
    if not model:
        return adverts
    serving = [advert for advert in adverts if serves(advert.model, model)]
    free = [advert for advert in adverts if not advert.model]
    return [*serving, *free]


def serves(served: str, reference: str) -> bool:
    """Whether a coordinator that serves the model named `served` serves what `reference`, a name or path, means."""
    return PurePath(reference).name.removesuffix(GGUF_SUFFIX) == served.removesuffix(GGUF_SUFFIX)


def shared_name(reference: str) -> str:
    """What another machine calls the model: a path of this one says nothing there, and the name of its file does."""
    path = Path(reference)
    return path.resolve().name if reference and path.exists() else reference
