"""Asking one node at its several addresses, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.discovery.cluster import Answered, Known, Lead, Unanswered
from coordinator.discovery.enquiry import ask
from coordinator.discovery.search import PATIENCE_S
from layerline.race import STAGGER_S
from tests.fakes.described import Says, describe_as, now_s
from tests.fakes.lookout import advert
from tests.fakes.virtual_time import run_in_virtual_time
from tests.fakes.worlds import node

SILENT = 1e9
LEAD = Known(lead=Lead.of_advert(advert("a", "x:1", "x:2", "x:3")))


def test_the_first_address_that_answers_wins() -> None:
    async def search() -> None:
        asked: list[str] = []
        outcome = await ask(LEAD, describe_as({"x:2": node("a"), "x:3": node("a")}, asked), PATIENCE_S)
        assert outcome == Answered(address="x:2", facts=node("a"), failures=(("x:1", "connection refused"),))
        assert asked == ["x:1", "x:2"]

    run_in_virtual_time(search())


def test_a_silent_address_holds_up_the_next_for_a_moment_only() -> None:
    async def search() -> None:
        began_s = now_s()
        outcome = await ask(LEAD, describe_as({"x:1": SILENT, "x:2": node("a")}), PATIENCE_S)
        assert isinstance(outcome, Answered)
        assert outcome.address == "x:2"
        assert now_s() - began_s == pytest.approx(STAGGER_S)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in_virtual_time(search())


def test_a_slow_first_address_may_still_win() -> None:
    async def search() -> None:
        lead = Known(lead=Lead.by_hand("slow:1"))
        outcome = await ask(lead, describe_as({"slow:1": 1.5}), PATIENCE_S)
        assert outcome == Answered(address="slow:1", facts=node("late"))

    run_in_virtual_time(search())


def test_when_no_address_answers_each_has_its_failure() -> None:
    async def search() -> None:
        began_s = now_s()
        outcome = await ask(LEAD, describe_as({"x:1": SILENT, "x:3": node("someone-else")}), PATIENCE_S)
        assert isinstance(outcome, Unanswered)
        assert dict(outcome.failures) == {
            "x:1": f"no answer within {PATIENCE_S:g} s",
            "x:2": "connection refused",
            "x:3": "another node answers there, someone-else",
        }
        assert now_s() - began_s == pytest.approx(PATIENCE_S)

    run_in_virtual_time(search())


def test_all_addresses_of_a_lead_may_have_to_answer_in_one_time() -> None:
    async def search() -> None:
        began_s = now_s()
        lead = Known(lead=Lead.of_advert(advert("a", *(f"x:{number}" for number in range(64)))))
        world: dict[str, Says] = {f"x:{number}": SILENT for number in range(1, 64)}
        outcome = await ask(lead, describe_as(world), PATIENCE_S, lead_patience_s=1.5 * STAGGER_S)
        assert now_s() - began_s == pytest.approx(1.5 * STAGGER_S)
        silent = f"no answer within {1.5 * STAGGER_S:g} s"
        assert outcome == Unanswered(failures=(("x:0", "connection refused"), ("x:1", silent), ("x:2", silent)))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in_virtual_time(search())
