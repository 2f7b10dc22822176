"""The search for nodes, in virtual time, over adverts and answers that are made up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

from coordinator.discovery.finder import Finder
from coordinator.discovery.search import NONE_FOUND_S, QUIET_S, SILENT_S, STARTING_S
from layerline.errors import UsageError
from tests.fakes.described import Says, describe_as, now_s
from tests.fakes.lookout import FakeLookout, advert
from tests.fakes.virtual_time import run_in_virtual_time
from tests.fakes.worlds import node

SILENT = 1e9


def finder(lookout: FakeLookout, world: Mapping[str, Says], *by_hand: str) -> Finder:
    return Finder(lookout, by_hand, describe_as(world), instance="0123456789abcdef")


def test_nodes_are_found_by_mdns_and_by_hand() -> None:
    async def search() -> None:
        lookout = FakeLookout(advert("a"))
        found = finder(lookout, {"a.lan:7070": node("a"), "far:1": node("far")}, "far:1")
        assert [(m.name, m.address, m.unusable) for m in await found.members()] == [
            ("a", "a.lan:7070", ""),
            ("far", "far:1", ""),
        ]
        assert now_s() - lookout.opened_s == pytest.approx(QUIET_S)
        assert found.searched == ("eth0 (10.0.0.1)", "lo (127.0.0.1)", "far:1")

    run_in_virtual_time(search())


def test_a_node_that_appears_during_the_search_is_found() -> None:
    async def search() -> None:
        lookout = FakeLookout(advert("a"))
        found = finder(lookout, {"a.lan:7070": node("a"), "b.lan:7070": node("b")})
        asyncio.get_running_loop().call_later(0.5, lookout.appear, advert("b"))
        assert [member.name for member in await found.members()] == ["a", "b"]
        assert now_s() - lookout.opened_s == pytest.approx(0.5 + QUIET_S)

    run_in_virtual_time(search())


def test_a_long_open_lookout_answers_at_once() -> None:
    async def search() -> None:
        lookout = FakeLookout(advert("a"))
        await asyncio.sleep(60)
        began_s = now_s()
        assert len(await finder(lookout, {"a.lan:7070": node("a")}).members()) == 1
        assert now_s() == began_s

    run_in_virtual_time(search())


def test_without_mdns_only_the_answers_are_waited_for() -> None:
    async def search() -> None:
        lookout = FakeLookout(failure="it was turned off")
        assert len(await finder(lookout, {"far:1": 0.2}, "far:1").members()) == 1
        assert now_s() - lookout.opened_s == pytest.approx(0.2)
        assert await finder(lookout, {}).members() == ()
        assert now_s() - lookout.opened_s == pytest.approx(0.2)

    run_in_virtual_time(search())


def test_a_node_that_is_starting_is_waited_for() -> None:
    async def search() -> None:
        facts = {"a.lan:7070": node("a", state="starting")}
        asyncio.get_running_loop().call_later(2.0, facts.update, {"a.lan:7070": node("a")})
        (member,) = await finder(FakeLookout(advert("a")), facts).members()
        assert member.unusable == ""

    run_in_virtual_time(search())


def test_a_node_that_never_gets_ready_is_not_waited_for_for_ever() -> None:
    async def search() -> None:
        lookout = FakeLookout(advert("a"))
        (member,) = await finder(lookout, {"a.lan:7070": node("a", state="starting")}).members()
        assert "measures" in member.unusable
        assert now_s() - lookout.opened_s == pytest.approx(STARTING_S)

    run_in_virtual_time(search())


def test_a_goodbye_does_not_unmake_a_node_that_answered() -> None:
    async def search() -> None:
        lookout = FakeLookout(advert("a"))
        asyncio.get_running_loop().call_later(0.3, lookout.show)
        assert [m.name for m in await finder(lookout, {"a.lan:7070": node("a")}).members()] == ["a"]

    run_in_virtual_time(search())


def test_whom_a_search_waits_for_is_told_as_it_becomes_known() -> None:
    async def search() -> None:
        facts: dict[str, Says] = {"a.lan:7070": node("a", state="starting"), "b.lan:7070": node("b")}
        asyncio.get_running_loop().call_later(20.0, facts.update, {"a.lan:7070": node("a")})
        told: list[tuple[float, tuple[str, ...]]] = []
        began_s = now_s()

        def on_starting(names: Sequence[str]) -> None:
            told.append((now_s() - began_s, tuple(names)))

        found = finder(FakeLookout(advert("a"), advert("b")), facts)
        assert [member.unusable for member in await found.members(on_starting=on_starting)] == ["", ""]
        assert told == [(0.0, ("a",))]
        assert now_s() - began_s == pytest.approx(20.0, abs=1.0)

    run_in_virtual_time(search())


def test_a_later_search_is_answered_by_the_nodes_that_are_known_at_once() -> None:
    async def search() -> None:
        world: dict[str, Says] = {"a.lan:7070": node("a"), "b.lan:7070": node("b")}
        lookout = FakeLookout(advert("a"), advert("b"))
        found = finder(lookout, world)
        assert len(await found.members()) == 2
        lookout.show()  # mDNS knows nothing of them any more, and they live
        began_s = now_s()
        assert [member.name for member in await found.members()] == ["a", "b"]
        assert now_s() == began_s

    run_in_virtual_time(search())


def test_a_node_that_died_keeps_a_later_search_waiting_no_longer_than_it_may() -> None:
    async def search() -> None:
        world: dict[str, Says] = {"a.lan:7070": node("a"), "b.lan:7070": node("b")}
        found = finder(FakeLookout(advert("a"), advert("b")), world)
        await found.members()
        world["b.lan:7070"], began_s = SILENT, now_s()
        members = await found.members(deadline_s=0.8, wait_for_starting=False)
        assert [(member.name, bool(member.facts)) for member in members] == [("a", True), ("b", False)]
        assert now_s() - began_s == pytest.approx(0.8)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in_virtual_time(search())


def test_a_silent_address_among_others_is_waited_for_for_a_few_seconds_only() -> None:
    async def search() -> None:
        silent = [f"10.0.0.{number}:1" for number in range(40)]
        lookout = FakeLookout(advert("a"), advert("dead", *silent))
        found = finder(lookout, {"a.lan:7070": node("a"), **dict.fromkeys(silent, SILENT)})
        assert [member.name for member in await found.members()] == ["a", "dead"]
        assert now_s() - lookout.opened_s == pytest.approx(SILENT_S)

    run_in_virtual_time(search())


def test_a_search_ends_as_soon_as_the_nodes_that_answered_are_enough() -> None:
    async def search() -> None:
        lookout = FakeLookout(advert("a"), advert("b"))
        found = finder(lookout, {"a.lan:7070": node("a"), "b.lan:7070": SILENT})
        members = await found.members(enough=lambda members: any(not member.unusable for member in members))
        assert [(member.name, member.unusable) for member in members] == [("a", ""), ("b", "it has not answered yet")]
        assert now_s() == lookout.opened_s

    run_in_virtual_time(search())


def test_two_thousand_forged_adverts_do_not_hide_the_nodes_that_are_there() -> None:
    async def search() -> None:
        forged = [advert(f"f{n}", f"10.9.{n // 250}.{n % 250}:1") for n in range(2_000)]
        world: dict[str, Says] = {each.addresses[0]: SILENT for each in forged}
        world |= {"a.lan:7070": node("a"), "b.lan:7070": node("b")}
        lookout = FakeLookout(*forged[:1_000], advert("a"), *forged[1_000:], advert("b"))
        found = finder(lookout, world)
        usable = [member.name for member in await found.members() if not member.unusable]
        assert usable == ["a", "b"]
        assert now_s() - lookout.opened_s <= SILENT_S
        began_s = now_s()
        known = await found.members(enough=lambda members: sum(not member.unusable for member in members) == 2)
        assert [member.name for member in known if member.facts] == ["a", "b"]
        assert now_s() == began_s

    run_in_virtual_time(search())


def test_forged_adverts_with_many_silent_addresses_do_not_keep_the_turns_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.discovery.search.MAX_ASKED_AT_ONCE", 20)

    async def search() -> None:
        forged = [advert(f"f{n}", *(f"10.9.0.{n}:{port}" for port in range(1, 65))) for n in range(20)]
        world: dict[str, Says] = {address: SILENT for each in forged for address in each.addresses}
        lookout = FakeLookout(*forged, advert("a"))
        members = await finder(lookout, {**world, "a.lan:7070": node("a")}).members()
        assert [member.name for member in members if member.facts] == ["a"]
        assert now_s() - lookout.opened_s <= SILENT_S

    run_in_virtual_time(search())


def test_two_searches_may_share_a_lookout() -> None:
    async def search() -> None:
        lookout = FakeLookout(advert("a"))
        found = finder(lookout, {"a.lan:7070": node("a"), "b.lan:7070": node("b")})
        asyncio.get_running_loop().call_later(0.5, lookout.appear, advert("b"))
        one, other = await asyncio.gather(found.members(), found.members())
        assert one == other
        assert len(one) == 2

    run_in_virtual_time(search())


def test_leaving_a_search_leaves_no_task_behind() -> None:
    async def search() -> None:
        searching = finder(FakeLookout(advert("a")), {"a.lan:7070": SILENT}).members()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await searching
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in_virtual_time(search())


def test_nothing_found_says_where_was_looked_and_what_to_do() -> None:
    async def search() -> None:
        lookout = FakeLookout()
        found = finder(lookout, {}, "10.0.0.9:7070")
        members = await found.members()
        assert now_s() - lookout.opened_s == pytest.approx(NONE_FOUND_S)
        error = found.nothing_found(members)
        assert "10.0.0.9:7070: it does not answer on 10.0.0.9:7070 (connection refused)" in error.message
        assert "by mDNS on eth0 (10.0.0.1), lo (127.0.0.1)" in error.message
        assert "layerline node" in error.remedy
        assert "--node HOST:PORT" in error.remedy

    run_in_virtual_time(search())


@pytest.mark.parametrize(
    ("make_lookout", "sentence"),
    [
        (FakeLookout, "No node was found. Nodes were looked for by mDNS on eth0 (10.0.0.1), lo (127.0.0.1)."),
        (lambda: FakeLookout(failure="port 5353 is taken"), "mDNS is not in use here: port 5353 is taken."),
        (lambda: FakeLookout(junk_reasons=("'x': its port is 0",)), "1 mDNS record was passed over as junk"),
        (lambda: FakeLookout(junk_reasons=("'x': its port is 0", "'y': no name")), "'x': its port is 0; 'y': no name."),
    ],
)
def test_nothing_found_tells_of_what_went_wrong_with_mdns(
    make_lookout: Callable[[], FakeLookout], sentence: str
) -> None:
    async def search() -> None:
        found = finder(make_lookout(), {})
        assert sentence in found.nothing_found(await found.members()).message

    run_in_virtual_time(search())


def test_nothing_usable_tells_why_for_each_node() -> None:
    async def search() -> None:
        found = finder(FakeLookout(advert("a")), {"a.lan:7070": node("a", state="draining")})
        assert "No node can be used. a: it is shutting down." in found.nothing_found(await found.members()).message

    run_in_virtual_time(search())


@pytest.mark.parametrize("address", ["desk", "desk:0", "fe80::1:7070"])
def test_an_address_by_hand_that_is_none_is_refused(address: str) -> None:
    async def search() -> None:
        with pytest.raises(UsageError, match="--node"):
            finder(FakeLookout(), {}, address)

    run_in_virtual_time(search())
