"""Whom a search asks and for how long it waits: given what is known, expect this."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.discovery.cluster import (
    Answered,
    Asked,
    Cluster,
    Event,
    GivenUp,
    Lead,
    Outcome,
    Seen,
    Told,
    Unanswered,
    apply,
)
from coordinator.discovery.search import (
    ASK_AGAIN_S,
    LONGEST_S,
    MAX_ASKED_AT_ONCE,
    NONE_FOUND_S,
    QUIET_S,
    SILENT_S,
    STARTING_S,
    Search,
)
from tests.fakes.lookout import advert
from tests.fakes.worlds import node

REFUSED = Unanswered(failures=(("x:1", "refused"),))
SEARCH = Search(began_s=100.0)
IMPATIENT = Search(began_s=100.0, deadline_s=1.0, starting_s=0.0)


def answer(name: str, **facts: Any) -> Answered:
    return Answered(address=f"{name}.lan:7070", facts=node(name, **facts))


def seen(*names: str, host: str = "") -> Cluster:
    """Adverts of these nodes."""
    return apply(Cluster(), *(Seen(lead=lead(name, host)) for name in names))


def lead(name: str, host: str = "") -> Lead:
    return Lead.of_advert(advert(name, f"{host or name + '.lan'}:7070"))


def told(name: str, outcome: Outcome, *, asked_s: float = 100.0, at_s: float = 100.1) -> tuple[Event, ...]:
    """A lead was asked, with that outcome."""
    key = lead(name).key
    return Asked(key=key, at_s=asked_s), Told(key=key, outcome=outcome, at_s=at_s)


def asked_names(search: Search, cluster: Cluster, now_s: float = 100.0) -> list[str]:
    return [known.lead.label for known in search.to_ask(cluster, now_s)]


def wait_s(search: Search, cluster: Cluster, now_s: float, newest_s: float = 100.0) -> float:
    return search.wait_s(cluster, now_s, opened_s=100.0, newest_s=newest_s)


def test_each_lead_is_asked_once_a_search() -> None:
    cluster = seen("a", "b")
    assert asked_names(SEARCH, cluster) == ["a", "b"]
    cluster = apply(cluster, *told("a", answer("a")), Asked(key=lead("b").key, at_s=100.0))
    assert asked_names(SEARCH, cluster, 105.0) == []
    assert asked_names(Search(began_s=101.0), cluster, 101.0) == ["a"]


def test_a_search_that_found_nothing_takes_three_seconds() -> None:
    assert wait_s(SEARCH, Cluster(), 100.0) == NONE_FOUND_S
    assert wait_s(SEARCH, Cluster(), 100.0 + NONE_FOUND_S) == 0


def test_a_search_that_found_a_node_takes_until_no_new_one_has_come_for_a_while() -> None:
    cluster = apply(seen("a"), *told("a", answer("a")))
    assert wait_s(SEARCH, cluster, 100.1) == pytest.approx(QUIET_S - 0.1)
    assert wait_s(SEARCH, cluster, 100.7, newest_s=100.5) == pytest.approx(QUIET_S - 0.2)
    assert wait_s(SEARCH, cluster, 100.6 + QUIET_S, newest_s=100.5) == 0


def test_known_nodes_that_answer_are_all_that_a_later_search_waits_for() -> None:
    later = Search(began_s=200.0)
    cluster = apply(seen("a", "b"), *told("a", answer("a")), *told("b", answer("b")))
    assert wait_s(later, cluster, 200.0) > 0
    cluster = apply(cluster, *told("a", answer("a"), asked_s=200.0, at_s=200.1))
    assert wait_s(later, cluster, 200.1) > 0
    cluster = apply(cluster, *told("b", REFUSED, asked_s=200.0, at_s=200.1))
    assert wait_s(later, cluster, 200.1) == 0


def test_those_that_do_not_answer_are_waited_for_as_long_as_the_search_may_take() -> None:
    cluster = apply(seen("a", "dead"), *told("a", answer("a")), Asked(key=lead("dead").key, at_s=100.0))
    assert wait_s(IMPATIENT, cluster, 100.4) == pytest.approx(0.6)
    assert wait_s(IMPATIENT, cluster, 101.0) == 0
    assert wait_s(SEARCH, cluster, 100.4) == pytest.approx(SILENT_S - 0.4)
    assert wait_s(SEARCH, cluster, 100.0 + SILENT_S) == 0


def test_a_search_that_found_only_silence_goes_on_as_if_nothing_had_been_found() -> None:
    assert wait_s(SEARCH, apply(seen("a"), *told("a", REFUSED)), 101.0) == NONE_FOUND_S - 1.0


def test_a_search_waits_for_its_only_lead_but_not_for_ever() -> None:
    cluster = apply(seen("a"), Asked(key=lead("a").key, at_s=100.0))
    assert wait_s(SEARCH, cluster, 105.0) == LONGEST_S - 5.0
    assert wait_s(SEARCH, cluster, 100.0 + LONGEST_S) == 0


def test_endless_new_leads_do_not_keep_a_search_open() -> None:
    cluster = apply(seen("a"), *told("a", answer("a")))
    assert wait_s(SEARCH, cluster, 100.0 + LONGEST_S, newest_s=100.0 + LONGEST_S) == 0


def test_a_starting_node_is_asked_again_until_it_is_ready() -> None:
    cluster = apply(seen("a"), *told("a", answer("a", state="starting")))
    assert SEARCH.starting(cluster) == ("a",)
    assert wait_s(SEARCH, cluster, 101.0) == pytest.approx(ASK_AGAIN_S)
    assert asked_names(SEARCH, cluster, 100.0 + ASK_AGAIN_S / 2) == []
    assert asked_names(SEARCH, cluster, 100.0 + ASK_AGAIN_S) == ["a"]
    cluster = apply(cluster, *told("a", REFUSED, asked_s=101.0, at_s=101.1))
    assert SEARCH.starting(cluster) == ("a",)
    cluster = apply(cluster, *told("a", answer("a"), asked_s=102.0, at_s=102.1))
    assert SEARCH.starting(cluster) == ()
    assert wait_s(SEARCH, cluster, 102.1) == 0


def test_a_starting_node_is_waited_for_longer_than_others_but_not_for_ever() -> None:
    cluster = apply(seen("a"), *told("a", answer("a", state="starting")))
    assert wait_s(SEARCH, cluster, 100.0 + LONGEST_S) == pytest.approx(ASK_AGAIN_S)
    assert wait_s(SEARCH, cluster, 100.0 + STARTING_S) == 0


def test_a_starting_node_is_not_waited_for_where_that_is_not_wanted() -> None:
    cluster = apply(seen("a"), *told("a", answer("a", state="starting")))
    assert IMPATIENT.starting(cluster) == ()
    assert wait_s(IMPATIENT, cluster, 100.0 + QUIET_S) == 0
    assert asked_names(IMPATIENT, cluster, 105.0) == []


def test_no_more_than_so_many_leads_are_asked_at_once_and_known_nodes_are_the_first() -> None:
    cluster = apply(seen(*(f"n{number}" for number in range(MAX_ASKED_AT_ONCE + 50))), *told("n300", answer("n300")))
    assert asked_names(SEARCH, cluster)[:2] == ["n0", "n1"]
    later = asked_names(Search(began_s=200.0), cluster, 200.0)
    assert (len(later), later[0]) == (MAX_ASKED_AT_ONCE, "n300")
    cluster = apply(cluster, *(Asked(key=lead(name).key, at_s=200.0) for name in later))
    assert asked_names(Search(began_s=200.0), cluster, 200.0) == []


def test_a_flood_of_adverts_from_one_host_does_not_push_others_back() -> None:
    flood = [Seen(lead=lead(f"forged{number}", "10.0.0.66")) for number in range(2_000)]
    cluster = apply(Cluster(), *flood, Seen(lead=lead("real")))
    assert "real" in asked_names(SEARCH, cluster)


def test_leads_that_were_given_up_come_after_those_that_were_never_asked() -> None:
    cluster = seen(*(f"n{number}" for number in range(MAX_ASKED_AT_ONCE + 50)))
    first = SEARCH.to_ask(cluster, 100.0)
    cluster = apply(cluster, *(Asked(key=known.lead.key, at_s=100.0) for known in first))
    cluster = apply(cluster, *(GivenUp(key=known.lead.key) for known in first))
    later = asked_names(Search(began_s=100.3), cluster, 100.3)
    assert later[:50] == [f"n{MAX_ASKED_AT_ONCE + number}" for number in range(50)]
