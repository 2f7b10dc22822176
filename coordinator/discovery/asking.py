"""Asks one lead on all its addresses: the first that answers wins, and a slow one does not hold up the next.

After RFC 8305 (happy eyeballs): each further address is tried when the one before failed, or after a short while.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from coordinator.discovery.membership import Answered, Lead, Outcome, Unanswered
from layerline.errors import LayerlineError, NodeUnreachableError
from layerline.facts import NodeFacts

Describe = Callable[[str], Awaitable[NodeFacts]]

ADDRESS_DEADLINE_S = 2.0
STAGGER_S = 0.25


async def ask(lead: Lead, describe: Describe) -> Outcome:
    """What comes of asking `lead`; never raises for what a peer or the network does."""
    waiting, failures = deque(lead.addresses), []
    tries: dict[asyncio.Task[NodeFacts], str] = {}
    try:
        while waiting or tries:
            if waiting:
                address = waiting.popleft()
                tries[asyncio.create_task(_described(lead, address, describe))] = address
            done, _ = await asyncio.wait(
                tries, timeout=STAGGER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in [task for task in tries if task in done]:
                address = tries.pop(task)
                failure = task.exception()
                if failure is None:
                    return Answered(address=address, facts=task.result())
                if not isinstance(failure, LayerlineError | TimeoutError):
                    raise failure
                failures.append((address, _in_words(address, failure)))
    finally:
        for task in tries:
            task.cancel()
        await asyncio.gather(*tries, return_exceptions=True)
    return Unanswered(failures=tuple(failures))


async def _described(lead: Lead, address: str, describe: Describe) -> NodeFacts:
    async with asyncio.timeout(ADDRESS_DEADLINE_S):
        facts = await describe(address)
    if lead.advert is not None and facts.node_id != lead.advert.node_id:
        raise NodeUnreachableError(f"another node answers there, {facts.name}")
    return facts


def _in_words(address: str, failure: BaseException) -> str:
    if isinstance(failure, LayerlineError):
        return failure.message.removeprefix(f"{address}: ").rstrip(".")
    return f"no answer within {ADDRESS_DEADLINE_S:g} s"
