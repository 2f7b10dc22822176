"""Asks one lead what it is, on all its addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coordinator.discovery.cluster import Answered, Known, Outcome, Unanswered
from layerline.errors import LayerlineError, NodeUnreachableError
from layerline.facts import NodeFacts
from layerline.race import race

Describe = Callable[[str], Awaitable[NodeFacts]]


async def ask(known: Known, describe: Describe, patience_s: float) -> Outcome:
    """What comes of asking, with so much patience for each address; raises nothing that a peer or the network does."""

    async def described(address: str) -> NodeFacts:
        async with asyncio.timeout(patience_s):
            facts = await describe(address)
        advert = known.lead.advert
        if advert is not None and facts.node_id != advert.node_id:
            raise NodeUnreachableError(f"another node answers there, {facts.name}")
        return facts

    ended = await race(known.addresses, described)
    failures = tuple((address, _in_words(address, failure, patience_s)) for address, failure in ended.failures)
    if ended.result is None:
        return Unanswered(failures=failures)
    return Answered(address=ended.winner, facts=ended.result, failures=failures)


def _in_words(address: str, failure: Exception, patience_s: float) -> str:
    if isinstance(failure, LayerlineError):
        return failure.message.removeprefix(f"{address}: ").rstrip(".")
    return f"no answer within {patience_s:g} s"
