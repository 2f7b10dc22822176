"""What is known of the nodes after these events: given those, expect this."""

from __future__ import annotations

import pytest

from coordinator.discovery.cluster import (
    Answered,
    Asked,
    Cluster,
    Event,
    GivenUp,
    Gone,
    Known,
    Lead,
    Seen,
    Told,
    Unanswered,
    apply,
)
from tests.fakes.lookout import advert
from tests.fakes.worlds import node

LEAD = Lead.of_advert(advert("a", "x:1", "x:2", "x:3"))
KEY = LEAD.key
SEEN = Seen(lead=LEAD)
ASKED = Asked(key=KEY, at_s=1.0)
ANSWER = Answered(address="x:2", facts=node("a"), failures=(("x:1", "refused"),))
ANSWERED = Told(key=KEY, outcome=ANSWER, at_s=2.0)
SILENT = Told(key=KEY, outcome=Unanswered(failures=(("x:2", "no answer"), ("x:3", "refused"))), at_s=3.0)
GONE = Gone(key=KEY)


def after(*events: Event) -> Known:
    """What is known of the lead after `events`."""
    return apply(Cluster(), *events).known[KEY]


def test_a_lead_that_was_seen_has_not_been_asked() -> None:
    known = after(SEEN)
    assert (known.lead, known.asking, known.asked_s, known.answer) == (LEAD, False, None, None)


def test_events_make_new_values_and_leave_the_old() -> None:
    before = apply(Cluster(), SEEN)
    assert apply(before, ASKED, ANSWERED).known[KEY].answer == ANSWER
    assert before.known[KEY].answer is None


def test_an_answer_is_remembered_with_when_it_came() -> None:
    known = after(SEEN, ASKED, ANSWERED)
    assert (known.asking, known.answered_since(2.0), known.answered_since(2.1)) == (False, ANSWER, None)
    assert (known.asked_since(1.0), known.asked_since(1.1)) == (True, False)


def test_where_a_node_answered_is_asked_first_and_where_nobody_did_last() -> None:
    assert after(SEEN).addresses == ("x:1", "x:2", "x:3")
    assert after(SEEN, ASKED, ANSWERED).addresses == ("x:2", "x:3", "x:1")
    assert after(SEEN, ASKED, SILENT).addresses == ("x:1", "x:2", "x:3")


def test_a_node_that_answered_is_remembered_whatever_mdns_says() -> None:
    assert after(SEEN, ASKED, ANSWERED, GONE).answer == ANSWER


@pytest.mark.parametrize(
    "events",
    [
        (SEEN, GONE),
        (SEEN, ASKED, SILENT, GONE),
        (SEEN, ASKED, ANSWERED, ASKED, SILENT, GONE),
        (SEEN, ASKED, ANSWERED, GONE, ASKED, SILENT),
    ],
)
def test_what_is_neither_advertised_nor_answers_is_forgotten(events: tuple[Event, ...]) -> None:
    assert apply(Cluster(), *events).known == {}


def test_one_answer_missed_does_not_take_away_the_one_before() -> None:
    known = after(SEEN, ASKED, ANSWERED, ASKED, SILENT)
    assert (known.answer, known.failures) == (ANSWER, (("x:2", "no answer"), ("x:3", "refused")))


def test_a_node_that_moved_is_to_be_asked_anew() -> None:
    moved = Lead.of_advert(advert("a", "10.0.0.7:7070"))
    known = after(SEEN, ASKED, SILENT, Seen(lead=moved))
    assert (known.lead, known.asked_s, known.failures) == (moved, None, None)


def test_an_advert_that_says_something_else_of_the_same_place_is_no_reason_to_ask_again() -> None:
    renamed = Lead.of_advert(advert("parlour", "x:1", "x:2", "x:3", node_id="id-a"))
    assert after(SEEN, ASKED, ANSWERED, Seen(lead=renamed)).asked_s == 1.0


def test_nobody_waits_for_an_asking_that_was_given_up() -> None:
    known = after(SEEN, ASKED, GivenUp(key=KEY))
    assert (known.asking, known.asked_since(1.0)) == (False, False)
    assert after(SEEN, ASKED, GivenUp(key=KEY), ASKED).asked_since(1.0)


@pytest.mark.parametrize("event", [ASKED, ANSWERED, SILENT, GONE, GivenUp(key=KEY)])
def test_what_is_told_of_a_lead_that_was_forgotten_is_passed_over(event: Event) -> None:
    assert apply(Cluster(), event).known == {}
