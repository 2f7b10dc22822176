"""Small scripted worlds in which memory is short, is given back, or is lost."""

from __future__ import annotations

import pytest

from coordinator.scheduling.events import Ended, Failed, Token
from layerline.errors import PlanDoesNotFitError, ProtocolError
from layerline.frames import PageRun
from tests.fakes.schedulers import capacity, issued, request, result, scheduler


def test_a_request_waits_for_the_pages_of_another_and_is_not_overtaken() -> None:
    world = scheduler(pages=4)
    world.add(request(1, 3, max_tokens=2))
    world.add(request(2, 13, max_tokens=2))
    world.add(request(3, 1, max_tokens=1))
    step = world.next_step()
    assert issued(step) == [(1, 0, 3, True)]
    world.complete(result(step, _1=7))
    step = world.next_step()
    assert issued(step) == [(1, 3, 1, True)]
    world.complete(result(step, _1=7))
    assert issued(world.next_step()) == [(2, 0, 8, False)]


def test_pages_of_a_cancelled_sequence_are_kept_until_its_steps_are_back() -> None:
    world = scheduler(pages=4)
    world.add(request(1, 13, max_tokens=2))
    first, second = world.next_step(), world.next_step()
    world.add(request(2, 2, max_tokens=2))
    assert world.cancel(1) == (Ended(sequence=1, reason="cancelled"),)
    assert world.cancel(1) == ()
    world.complete(result(first))
    assert world.next_step() is None
    assert world.complete(result(second, _1=7)) == (), "nothing is told after the end"
    assert issued(world.next_step()) == [(2, 0, 2, True)]


def test_cancelling_a_waiting_sequence() -> None:
    world = scheduler(pages=4)
    world.add(request(1, 13, max_tokens=2))
    world.next_step()
    world.add(request(2, 2))
    assert world.cancel(2) == (Ended(sequence=2, reason="cancelled"),)
    assert world.cancel(77) == ()


def test_finishing_from_outside_is_a_stop() -> None:
    world = scheduler()
    world.add(request(1, 2))
    world.complete(result(world.next_step(), _1=7))
    assert world.finish(1) == (Ended(sequence=1, reason="stop"),)
    assert world.idle
    assert world.next_step() is None


def test_a_lost_pipeline_is_prefilled_again_with_the_answer_so_far() -> None:
    world = scheduler()
    world.add(request(1, 3))
    world.complete(result(world.next_step(), _1=7))
    lost = world.next_step()
    world.add(request(2, 2))
    world.lose()
    assert world.steps_in_flight == 0
    step = world.next_step()
    assert issued(step) == [(1, 0, 4, True), (2, 0, 2, True)]
    assert step is not None
    assert step.token_ids == (100, 101, 102, 7, 200, 201)
    with pytest.raises(ProtocolError):
        world.complete(result(lost, _1=8))
    assert world.complete(result(step, _1=8, _2=9)) == (
        Token(sequence=1, token_id=8, position=4, first=False),
        Token(sequence=2, token_id=9, position=2, first=True),
    )


def test_a_lost_pipeline_frees_what_was_cancelled() -> None:
    world = scheduler()
    world.add(request(1, 3))
    world.next_step()
    world.cancel(1)
    world.lose()
    assert world.idle
    assert world.pool.free_pages == 64


def test_losing_tells_which_sequences_had_been_begun() -> None:
    world = scheduler(pages=4)
    world.add(request(1, 13, max_tokens=2))
    world.add(request(2, 2))
    world.next_step()
    assert world.lose() == (1,)
    assert world.lose() == ()


def test_sequences_go_on_in_a_pipeline_of_another_capacity() -> None:
    world = scheduler(page_tokens=4)
    world.add(request(1, 5, max_tokens=6))
    world.complete(result(world.next_step(), _1=7))
    world.lose()
    assert world.renew(capacity(page_tokens=2, pages=5, max_rows=4, chunk_tokens=4, max_in_flight=1)) == ()
    assert issued(world.next_step()) == [(1, 0, 4, False)]
    step = world.next_step()
    assert issued(step) == [(1, 4, 2, True)]
    assert step is not None
    assert step.spans[0].pages == (PageRun(first=0, count=3),)
    assert world.pool.free_pages == 0, "five pages hold the ten positions that it can come to need"


def test_what_does_not_fit_the_next_pipeline_fails_and_says_what_it_needs() -> None:
    world = scheduler()
    world.add(request(1, 5, max_tokens=60))
    world.add(request(2, 5, max_tokens=20))
    world.add(request(3, 5, max_tokens=0))
    world.add(request(4, 50, max_tokens=0))
    world.lose()
    failures = world.renew(capacity(context_tokens=40))
    assert [type(failed) for failed in failures] == [Failed, Failed]
    first, other = (failed for failed in failures if isinstance(failed, Failed))
    assert (first.sequence, other.sequence) == (1, 4)
    assert isinstance(first.error, PlanDoesNotFitError)
    assert "needs a context of 65 tokens; the nodes there are now hold 40" in first.error.message
    assert "needs a context of 51 tokens" in other.error.message
    assert world.figures().sequences_waiting == 2
    assert {span for span, *_ in issued(world.next_step())} == {2, 3}


def test_a_pool_that_is_too_small_is_told_by_what_it_holds() -> None:
    world = scheduler()
    world.add(request(1, 5, max_tokens=30))
    world.lose()
    (failed,) = world.renew(capacity(pages=4, page_tokens=4))
    assert isinstance(failed, Failed)
    assert "needs a context of 35 tokens; the nodes there are now hold 17" in failed.error.message


def test_an_answer_without_a_limit_may_become_shorter_but_never_longer() -> None:
    world = scheduler(context_tokens=10)
    world.add(request(1, 5, max_tokens=0))
    world.complete(result(world.next_step(), _1=7))
    world.lose()
    assert world.renew(capacity(context_tokens=90)) == ()
    world.lose()
    assert world.renew(capacity(context_tokens=7)) == ()
    ended = world.complete(result(world.next_step(), _1=7))
    assert ended[-1] == Ended(sequence=1, reason="length")


def test_counts_go_on_in_the_next_pipeline() -> None:
    world = scheduler()
    world.add(request(1, 5))
    world.next_step()
    world.lose()
    world.renew(capacity())
    world.next_step()
    figures = world.figures()
    assert (figures.steps, figures.lookup_tokens, figures.prompt_rows) == (2, 10, 10)


def test_an_open_ended_sequence_grows_in_place() -> None:
    world = scheduler(pages=16)
    world.add(request(1, 4, max_tokens=0))
    step = world.next_step()
    assert world.pool.free_pages == 16 - 3
    for _ in range(9):
        world.complete(result(step, _1=7))
        step = world.next_step()
    assert world.pool.free_pages == 16 - 5
    assert step is not None
    assert [(run.first, run.count) for run in step.spans[0].pages] == [(0, 4)]


def test_the_youngest_gives_way_to_an_older_one_that_grows() -> None:
    world = scheduler(pages=6, max_in_flight=1)
    world.add(request(1, 4, max_tokens=0))
    world.add(request(2, 4, max_tokens=0))
    step = world.next_step()
    for _ in range(9):
        world.complete(result(step, _1=7, _2=7))
        step = world.next_step()
    assert issued(step) == [(1, 12, 1, True)], "its page was that of 2"
    assert world.cancel(1) == (Ended(sequence=1, reason="cancelled"),)
    world.complete(result(step, _1=7))
    assert issued(world.next_step()) == [(2, 4, 8, False)], "one page was not taken, the rest is prefilled again"


def test_a_preempted_sequence_keeps_the_token_that_was_in_flight() -> None:
    world = scheduler(pages=6, max_in_flight=2)
    world.add(request(1, 4, max_tokens=0))
    world.add(request(2, 4, max_tokens=0))
    world.complete(result(world.next_step(), _1=7, _2=7))
    one, two = world.next_step(), world.next_step()
    for _ in range(7):
        world.complete(result(one, _1=7))
        one = world.next_step()
        world.complete(result(two, _2=7))
        two = world.next_step()
    world.complete(result(one, _1=7))
    assert world.next_step() is None, "the step of 2 still touches the pages that 1 is to get"
    assert world.complete(result(two, _2=9)) == (Token(sequence=2, token_id=9, position=12, first=False),)
    one = world.next_step()
    assert issued(one) == [(1, 12, 1, True)]
    world.cancel(1)
    world.complete(result(one, _1=7))
    assert issued(world.next_step()) == [(2, 4, 8, False)], "one page was not taken, the rest is prefilled again"
    last = world.next_step()
    assert last is not None
    assert last.token_ids[-1] == 9
