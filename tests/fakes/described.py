"""What the nodes of a made-up network answer to `Describe`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from coordinator.discovery.enquiry import Describe
from layerline.errors import NodeUnreachableError
from layerline.facts import NodeFacts
from tests.fakes.worlds import node

Says = NodeFacts | str | float  # facts, a refusal, or silence for so many seconds and then facts of "late"


def describe_as(world: Mapping[str, Says], asked: list[str] | None = None) -> Describe:
    """Answers as `world` says; any other address is refused."""

    async def describe(address: str) -> NodeFacts:
        if asked is not None:
            asked.append(address)
        says = world.get(address, "connection refused")
        if isinstance(says, str):
            raise NodeUnreachableError(f"{address}: {says}")
        if isinstance(says, float):
            await asyncio.sleep(says)
            return node("late")
        return says

    return describe


def now_s() -> float:
    """The time of the loop that runs."""
    return asyncio.get_running_loop().time()
