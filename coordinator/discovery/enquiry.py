"""Asks one lead what it is, on all its addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coordinator.discovery.cluster import Answered, Known, Outcome, Unanswered
from layerline.errors import LayerlineError, NodeUnreachableError
from layerline.facts import NodeFacts
from layerline.race import race

Describe = Callable[[str], Awaitable[NodeFacts]]


async def ask(known: Known, describe: Describe, patience_s: float, *, lead_patience_s: float | None = None) -> Outcome:
    """What comes of asking; raises nothing that a peer or the network does.

    Each address may take `patience_s`, and all together `lead_patience_s`, if that is given.
    """
    tried: dict[str, str] = {}  # the addresses, and what came of asking there
    shortest_s = patience_s if lead_patience_s is None else min(patience_s, lead_patience_s)

    async def described(address: str) -> NodeFacts:
        tried[address] = f"no answer within {shortest_s:g} s"
        try:
            async with asyncio.timeout(patience_s):
                facts = await describe(address)
            advert = known.lead.advert
            if advert is not None and facts.node_id != advert.node_id:
                raise NodeUnreachableError(f"another node answers there, {facts.name}")
        except LayerlineError as failure:
            tried[address] = failure.message.removeprefix(f"{address}: ").rstrip(".")
            raise
        return facts

    try:
        async with asyncio.timeout(lead_patience_s):
            ended = await race(known.addresses, described)
    except TimeoutError:
        return Unanswered(failures=tuple(tried.items()))
    failures = tuple((address, tried[address]) for address, _ in ended.failures)
    if ended.result is None:
        return Unanswered(failures=failures)
    return Answered(address=ended.winner, facts=ended.result, failures=failures)
