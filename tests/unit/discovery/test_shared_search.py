"""Several searches of one finder at once, in virtual time: what one learns or gives up is the others' matter too."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.described import Says, now_s
from tests.fakes.lookout import FakeLookout, advert
from tests.fakes.virtual_time import run_in_virtual_time
from tests.fakes.worlds import node
from tests.unit.discovery.test_finder import SILENT, finder


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_lead_that_another_search_gave_up_is_asked(cancelled: bool) -> None:
    async def search() -> None:
        world: dict[str, Says] = {"a.lan:7070": node("a"), "b.lan:7070": SILENT}
        lookout = FakeLookout(advert("a"))
        found = finder(lookout, world)
        first = asyncio.create_task(found.members(deadline_s=1e9 if cancelled else 1.0))
        second = asyncio.create_task(found.members())
        await asyncio.sleep(0.5)
        lookout.appear(advert("b"))  # which the first search asks, and the second does not
        await asyncio.sleep(0.4)
        world["b.lan:7070"] = node("b")  # from now on it answers those who ask
        if cancelled:
            first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert [(member.name, member.unusable) for member in await second] == [("a", ""), ("b", "")]

    run_in_virtual_time(search())


def test_a_search_is_content_with_answers_that_another_one_brought() -> None:
    async def search() -> None:
        lookout = FakeLookout(advert("b"))
        found = finder(lookout, {"far:1": 0.5, "b.lan:7070": SILENT}, "far:1")
        first = asyncio.create_task(found.members())
        await asyncio.sleep(0.1)
        members = await found.members(enough=lambda members: any(member.facts for member in members))
        assert now_s() - lookout.opened_s == pytest.approx(0.5)
        assert len(members) == 2
        await first

    run_in_virtual_time(search())
