"""Who is a member, who can be used, and why the others cannot: given these answers, expect this."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.discovery.cluster import Answered, Asked, Cluster, Event, Lead, Outcome, Seen, Told, Unanswered, apply
from coordinator.discovery.members import MAX_SILENT_TOLD, Member, members, unusable_notes
from layerline.facts import Holder, ModelListing, NodeFacts
from layerline.version import WIRE_VERSION
from tests.fakes.lookout import advert
from tests.fakes.worlds import node

OWN = "0123456789abcdef"

LISTING = ModelListing(name="tiny.gguf", size_bytes=1)


def lead(name: str, *addresses: str, **fields: Any) -> Lead:
    return Lead.of_advert(advert(name, *addresses, **fields))


def answered(facts: NodeFacts, address: str = "", *failures: tuple[str, str]) -> Answered:
    return Answered(address=address or facts.addresses[0], facts=facts, failures=failures)


def after(*answers: tuple[Lead, Outcome | None], since_s: float = 0.0) -> tuple[Member, ...]:
    """The members once these leads have been asked, with these outcomes; None is none so far."""
    events: list[Event] = []
    for each, outcome in answers:
        events += [Seen(lead=each), Asked(key=each.key, at_s=1.0)]
        if outcome:
            events.append(Told(key=each.key, outcome=outcome, at_s=1.0))
    return members(apply(Cluster(), *events), since_s=since_s, instance=OWN)


def why(facts: NodeFacts) -> str:
    (member,) = after((lead(facts.name), answered(facts)))
    return member.unusable


def test_a_node_that_answers_can_be_used() -> None:
    (member,) = after((lead("a"), answered(node("a"), "10.0.0.2:7070")))
    assert (member.name, member.address, member.unusable) == ("a", "10.0.0.2:7070", "")
    assert member.report.facts == node("a")


def test_a_member_is_met_first_where_it_answered_and_last_where_nobody_did() -> None:
    facts = node("a", addresses=("172.17.0.1:7070", "10.0.0.2:7070", "[fe80::1%eth0]:7070"))
    where = lead("a", "172.17.0.1:7070", "[fe80::1%3]:7070")
    (member,) = after((where, answered(facts, "[fe80::1%3]:7070", ("172.17.0.1:7070", "another node answers there"))))
    assert member.addresses == ("[fe80::1%3]:7070", "10.0.0.2:7070", "[fe80::1%eth0]:7070", "172.17.0.1:7070")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (node("a", wire_version=7), f"wire version 7 and this coordinator speaks {WIRE_VERSION}"),
        (node("a", state="draining"), "shutting down"),
        (node("a", state="starting"), "still measures its devices"),
        (
            node("a", held_by=Holder(coordinator="attic/9", address="10.0.0.9:555", instance="0" * 16)),
            "held by the coordinator attic/9 at 10.0.0.9:555",
        ),
    ],
)
def test_a_node_that_cannot_be_used_has_a_reason(facts: NodeFacts, reason: str) -> None:
    assert reason in why(facts)


def test_a_node_that_this_coordinator_holds_can_be_used() -> None:
    assert why(node("a", held_by=Holder(coordinator="desk/1", address="10.0.0.1:444", instance=OWN))) == ""


@pytest.mark.parametrize(("state", "models"), [("ready", (LISTING,)), ("starting", (LISTING,)), ("draining", ())])
def test_the_models_of_a_node_that_is_or_will_be_ready_count(state: str, models: tuple[ModelListing, ...]) -> None:
    (member,) = after((lead("a"), answered(node("a", state=state, models=(LISTING,)))))
    assert member.models == models


def test_a_silent_node_has_what_each_address_said() -> None:
    failures = (("10.0.0.2:7070", "connection refused"), ("[fd00::2]:7070", "no answer within 2 s"))
    (member,) = after((lead("a"), Unanswered(failures=failures)))
    assert (member.name, member.address, member.facts, member.models) == ("a", "", None, ())
    assert member.unusable == (
        "it does not answer on 10.0.0.2:7070 (connection refused), [fd00::2]:7070 (no answer within 2 s)"
    )
    assert unusable_notes([member]) == (f"a cannot be used: {member.unusable}.",)


def test_a_node_that_has_not_answered_in_this_search_is_silent_whatever_it_said_before() -> None:
    (member,) = after((lead("a"), answered(node("a"))), since_s=2.0)
    assert (member.name, member.facts, member.unusable) == ("a", None, "it has not answered yet")


def test_a_silent_node_of_another_wire_version_says_both() -> None:
    (member,) = after((lead("a", wire_version=9), Unanswered(failures=(("a:1", "refused"),))))
    assert "wire version 9" in member.unusable
    assert "a:1 (refused)" in member.unusable


def test_very_many_silent_ones_are_counted_not_listed() -> None:
    found = after((lead("real"), answered(node("real"))), *((lead(f"forged{n}"), None) for n in range(2_000)))
    assert len(found) == MAX_SILENT_TOLD + 2
    assert next(member for member in found if member.facts).name == "real"
    assert found[0].name == f"{2_000 - MAX_SILENT_TOLD} others"


def test_the_same_daemon_met_twice_is_one_member() -> None:
    facts = node("a", addresses=("10.0.0.2:7070", "[fd00::2]:7070"))
    by_hand = Lead.by_hand("10.0.0.2:7070")
    found = after((by_hand, answered(facts)), (lead("a"), answered(facts, "[fd00::2]:7070")))
    assert [(member.address, member.unusable) for member in found] == [("10.0.0.2:7070", "")]


def test_two_daemons_with_one_id_are_both_named_and_neither_is_used() -> None:
    one = node("a", node_id="id-x", addresses=("10.0.0.2:7070", "127.0.0.1:7070"))
    other = node("b", node_id="id-x", addresses=("10.0.0.3:7070", "127.0.0.1:7070"))
    found = after((Lead.by_hand("a:1"), answered(one)), (Lead.by_hand("b:1"), answered(other)))
    assert [member.name for member in found] == ["a", "b"]
    for member in found:
        assert "id-x is claimed by a at 10.0.0.2:7070 and b at 10.0.0.3:7070" in member.unusable


def test_a_silent_advert_of_a_node_that_answers_elsewhere_is_no_member_of_its_own() -> None:
    stale = (lead("a", "10.0.0.2:1"), Unanswered(failures=(("10.0.0.2:1", "refused"),)))
    by_hand = (Lead.by_hand("10.0.0.2:2"), answered(node("a"), "10.0.0.2:2"))
    assert [member.address for member in after(stale, by_hand)] == ["10.0.0.2:2"]
