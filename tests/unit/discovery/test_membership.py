"""Who is a member, who can be used, and why the others cannot: given these answers, expect this."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.discovery.membership import (
    ASK_AGAIN_S,
    LONGEST_S,
    MAX_ASKED_AT_ONCE,
    NONE_FOUND_S,
    QUIET_S,
    Answered,
    Lead,
    Membership,
    Unanswered,
    unusable_notes,
)
from layerline.facts import Holder, NodeFacts
from layerline.version import WIRE_VERSION
from tests.fakes.lookout import advert
from tests.fakes.worlds import node


def lead(name: str, *addresses: str, **fields: Any) -> Lead:
    return Lead.of_advert(advert(name, *addresses, **fields))


def answered(facts: NodeFacts, address: str = "") -> Answered:
    return Answered(address=address or facts.addresses[0], facts=facts)


def membership(**options: Any) -> Membership:
    return Membership(coordinator="desk/1", began_s=0.0, **options)


def after(*answers: tuple[Lead, Answered | Unanswered]) -> Membership:
    """A search whose leads have all been asked, with these outcomes."""
    search = membership()
    search.to_ask([each for each, _ in answers], 0.0)
    for each, outcome in answers:
        search.note(each, outcome)
    return search


def why(facts: NodeFacts) -> str:
    (member,) = after((lead(facts.name), answered(facts))).members()
    return member.unusable


def test_a_node_that_answers_can_be_used():
    (member,) = after((lead("a"), answered(node("a"), "10.0.0.2:7070"))).members()
    assert (member.name, member.address, member.unusable) == ("a", "10.0.0.2:7070", "")
    assert member.report.facts == node("a")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (node("a", wire_version=7), f"wire version 7 and this coordinator speaks {WIRE_VERSION}"),
        (node("a", state="draining"), "shutting down"),
        (node("a", state="starting"), "still measures its devices"),
        (
            node("a", held_by=Holder(coordinator="attic/9", address="10.0.0.9:555")),
            "held by the coordinator attic/9 at 10.0.0.9:555",
        ),
    ],
)
def test_a_node_that_cannot_be_used_has_a_reason(facts: NodeFacts, reason: str):
    assert reason in why(facts)


def test_a_node_that_this_coordinator_holds_can_be_used():
    assert why(node("a", held_by=Holder(coordinator="desk/1", address="10.0.0.1:444"))) == ""


def test_a_silent_node_has_what_each_address_said():
    failures = (("10.0.0.2:7070", "connection refused"), ("[fd00::2]:7070", "no answer within 2 s"))
    (member,) = after((lead("a"), Unanswered(failures=failures))).members()
    assert (member.name, member.address, member.facts) == ("a", "", None)
    assert member.unusable == (
        "it does not answer on 10.0.0.2:7070 (connection refused), [fd00::2]:7070 (no answer within 2 s)"
    )
    assert unusable_notes([member]) == (f"a cannot be used: {member.unusable}.",)


def test_a_silent_node_of_another_wire_version_says_both():
    silent = (lead("a", wire_version=9), Unanswered(failures=(("a:1", "refused"),)))
    (member,) = after(silent).members()
    assert "wire version 9" in member.unusable
    assert "a:1 (refused)" in member.unusable


def test_the_same_daemon_met_twice_is_one_member():
    facts = node("a", addresses=("10.0.0.2:7070", "[fd00::2]:7070"))
    by_hand = Lead.by_hand("10.0.0.2:7070")
    found = after((by_hand, answered(facts)), (lead("a"), answered(facts, "[fd00::2]:7070"))).members()
    assert [(member.address, member.unusable) for member in found] == [("10.0.0.2:7070", "")]


def test_two_daemons_with_one_id_are_both_named_and_neither_is_used():
    one = node("a", node_id="id-x", addresses=("10.0.0.2:7070", "127.0.0.1:7070"))
    other = node("b", node_id="id-x", addresses=("10.0.0.3:7070", "127.0.0.1:7070"))
    found = after((lead("a"), answered(one)), (lead("b"), answered(other))).members()
    assert [member.name for member in found] == ["a", "b"]
    for member in found:
        assert "id-x is claimed by a at 10.0.0.2:7070 and b at 10.0.0.3:7070" in member.unusable


def test_a_stale_advert_of_a_node_that_answers_elsewhere_is_no_member_of_its_own():
    stale = (lead("a", "10.0.0.2:1"), Unanswered(failures=(("10.0.0.2:1", "refused"),)))
    fresh = (lead("a", "10.0.0.2:2"), answered(node("a"), "10.0.0.2:2"))
    assert [member.address for member in after(stale, fresh).members()] == ["10.0.0.2:2"]


def wait_s(search: Membership, now_s: float, newest_s: float = 0.0) -> float:
    return search.wait_s(now_s, opened_s=0.0, newest_s=newest_s)


def test_a_search_that_found_nothing_takes_three_seconds():
    search = membership()
    assert wait_s(search, 0.0) == NONE_FOUND_S
    assert wait_s(search, NONE_FOUND_S) == 0


def test_a_search_that_found_a_node_takes_until_no_new_one_has_come_for_a_while():
    search = after((lead("a"), answered(node("a"))))
    assert wait_s(search, 0.1) == pytest.approx(QUIET_S - 0.1)
    assert wait_s(search, 0.7, newest_s=0.5) == pytest.approx(QUIET_S - 0.2)
    assert wait_s(search, 0.5 + QUIET_S + 0.1, newest_s=0.5) == 0


def test_a_search_that_found_only_silence_goes_on_as_if_nothing_had_been_found():
    assert wait_s(after((lead("a"), Unanswered(failures=(("a:1", "refused"),)))), 1.0) == NONE_FOUND_S - 1.0


def test_a_search_waits_for_answers_but_not_for_ever():
    search = membership()
    search.to_ask([lead("a")], 0.0)
    assert wait_s(search, 5.0) == LONGEST_S - 5.0
    assert wait_s(search, LONGEST_S) == 0
    assert search.members()[0].unusable == "it has not answered yet"


def test_endless_new_leads_do_not_keep_a_search_open():
    search = after((lead("a"), answered(node("a"))))
    assert wait_s(search, LONGEST_S, newest_s=LONGEST_S) == 0


def test_each_lead_is_asked_once():
    search = membership()
    assert search.to_ask([lead("a"), lead("a"), lead("b")], 0.0) == (lead("a"), lead("b"))
    search.note(lead("a"), answered(node("a")))
    assert search.to_ask([lead("a"), lead("b"), lead("c")], 0.1) == (lead("c"),)


def test_a_node_with_new_addresses_is_asked_anew():
    search = after((lead("a"), Unanswered(failures=(("a.lan:7070", "refused"),))))
    moved = lead("a", "10.0.0.7:7070")
    assert search.to_ask([moved], 1.0) == (moved,)
    search.note(moved, answered(node("a")))
    assert [member.unusable for member in search.members()] == [""]


def test_a_lead_that_vanishes_unanswered_is_forgotten_and_one_that_answered_is_not():
    search = after((lead("a"), answered(node("a"))), (lead("b"), Unanswered(failures=(("b:1", "refused"),))))
    search.to_ask([], 1.0)
    assert [member.name for member in search.members()] == ["a"]


def test_an_answer_for_a_lead_that_vanished_is_passed_over():
    search = membership()
    search.to_ask([lead("a")], 0.0)
    search.to_ask([], 0.1)
    search.note(lead("a"), answered(node("a")))
    assert search.members() == ()


def test_a_starting_node_is_asked_again_until_it_is_ready():
    search = after((lead("a"), answered(node("a", state="starting"))))
    assert wait_s(search, 1.0) == ASK_AGAIN_S
    assert search.to_ask([lead("a")], ASK_AGAIN_S / 2) == ()
    assert search.to_ask([lead("a")], ASK_AGAIN_S) == (lead("a"),)
    search.note(lead("a"), Unanswered(failures=()))
    assert "measures" in search.members()[0].unusable
    search.note(lead("a"), answered(node("a")))
    assert search.members()[0].unusable == ""
    assert wait_s(search, QUIET_S) == 0


def test_a_starting_node_is_not_waited_for_where_that_is_not_wanted():
    search = membership(wait_for_starting=False)
    search.to_ask([lead("a")], 0.0)
    search.note(lead("a"), answered(node("a", state="starting")))
    assert wait_s(search, QUIET_S) == 0
    assert search.to_ask([lead("a")], 5.0) == ()


def test_no_more_than_so_many_leads_are_asked_at_once():
    search, leads = membership(), [lead(f"n{i}") for i in range(MAX_ASKED_AT_ONCE + 3)]
    assert search.to_ask(leads, 0.0) == tuple(leads[:MAX_ASKED_AT_ONCE])
    search.note(leads[0], answered(node("n0")))
    assert search.to_ask(leads, 0.1) == (leads[MAX_ASKED_AT_ONCE],)
