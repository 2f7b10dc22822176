"""Asks one lead what it is, on all its addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coordinator.discovery.cluster import Answered, Known, Outcome, Unanswered
from layerline.errors import LayerlineError, NodeUnreachableError
from layerline.facts import NodeFacts
from layerline.racing import race

Describe = Callable[[str], Awaitable[NodeFacts]]

ADDRESS_DEADLINE_S = 2.0


async def ask(known: Known, describe: Describe) -> Outcome:
    """What comes of asking; never raises for what a peer or the network does."""

    async def described(address: str) -> NodeFacts:
        async with asyncio.timeout(ADDRESS_DEADLINE_S):
            facts = await describe(address)
        advert = known.lead.advert
        if advert is not None and facts.node_id != advert.node_id:
            raise NodeUnreachableError(f"another node answers there, {facts.name}")
        return facts

    ended = await race(known.addresses, described)
    failures = tuple((address, _in_words(address, failure)) for address, failure in ended.failures)
    if ended.result is None:
        return Unanswered(failures=failures)
    return Answered(address=ended.winner, facts=ended.result, failures=failures)


def _in_words(address: str, failure: Exception) -> str:
    if isinstance(failure, LayerlineError):
        return failure.message.removeprefix(f"{address}: ").rstrip(".")
    return f"no answer within {ADDRESS_DEADLINE_S:g} s"
