"""Where a model has recurrent layers: these requests go in, exactly these rows are computed, and from these slots."""

from __future__ import annotations

import pytest

from coordinator.scheduling.sequence import SequenceRequest
from layerline.frames import Span
from layerline.step_result import StepResult
from tests.fakes.paged_pipeline import answer
from tests.fakes.recurrent_world import World
from tests.fakes.schedulers import result

PROMPT = tuple(range(10, 30))  # five pages


def states(span: Span) -> list[tuple[int, int | None, int]]:
    return [(run.count, run.source, run.target) for run in span.states]


def test_a_model_without_recurrent_layers_has_no_slots() -> None:
    world = World(slots=0)
    world.add(1, *PROMPT)
    assert world.run() == [(1, 0, 8), (1, 8, 8), (1, 16, 4)]
    assert all(span.states == () for span in world.spans)
    assert world.scheduler.slots is None
    assert world.scheduler.figures().slots is None


def test_a_sequence_goes_on_from_its_slot_and_leaves_one_behind_at_the_last_page_that_others_can_share() -> None:
    world = World()
    world.add(1, *PROMPT, 30, max_tokens=3)
    world.run()
    assert [states(span) for span in world.spans] == [
        [(8, None, 0)],
        [(8, 0, 0)],
        [(4, 0, 0), (1, 0, 1)],
        [(1, 1, 1)],
        [(1, 1, 1)],
    ]


def test_a_request_goes_on_from_the_last_checkpoint_of_its_prefix() -> None:
    world = World()
    world.add(1, *PROMPT)
    world.run()
    assert world.slots == (0, 2, 6), "before the last token of the prompt, and after it"
    world.add(2, *PROMPT)
    assert world.run() == [(2, 16, 4)]
    world.add(3, *PROMPT, 90)
    assert world.run() == [(3, 20, 1)]
    world.add(4, *PROMPT[:15], 90)
    assert world.run()[0] == (4, 0, 8), "pages are known, but no state at their end"
    assert world.scheduler.figures().hit_tokens == 16 + 20


def test_a_checkpoint_is_read_by_those_who_go_on_from_it_and_written_by_nobody() -> None:
    world = World(max_rows=32, chunk_tokens=32)
    world.add(1, *PROMPT)
    world.run()
    for number in (2, 3):
        world.add(number, *PROMPT, 90 + number)
    world.send()
    sources, targets = zip(*[states(span)[0][1:] for span in world.spans[-2:]], strict=True)
    assert len({*sources}) == 1
    assert len({*targets, *sources}) == 3
    world.receive()
    world.run()


def test_forks_prefill_a_prompt_once() -> None:
    world = World()
    first = SequenceRequest(sequence=1, token_ids=PROMPT, max_tokens=6)
    for index in range(4):
        world.put(first.fork(1 + index, index))
    chunks = world.run()
    assert chunks[:3] == [(1, 0, 8), (1, 8, 8), (1, 16, 4)]
    assert sorted(chunks[3:]) == [(2, 16, 4), (3, 16, 4), (4, 16, 4)]


def test_requests_that_come_with_one_preamble_prefill_it_once() -> None:
    world = World(max_waiting=20, slots=20)
    for number in range(1, 11):
        world.add(number, *PROMPT[:16], number, number, number)
    assert sum(count for _, _, count in world.run()) == 16 + 10 * 3


def test_a_preamble_that_an_answer_has_left_is_computed_once_more_by_one_request() -> None:
    world = World(max_waiting=20, slots=20)
    world.add(1, *PROMPT, 1, 1, 1)
    world.run()
    for number in range(2, 8):
        world.add(number, *PROMPT[:16], number, number, number)
    chunks = world.run()
    assert chunks[:2] == [(2, 0, 8), (2, 8, 8)]
    assert sum(count for sequence, _, count in chunks if sequence > 2) == 5 * 3


def test_pages_computed_once_more_are_given_back_for_those_that_are_known() -> None:
    world = World()
    world.add(1, *PROMPT, 1, 1, 1)
    world.run()
    cached = world.scheduler.pool.cached_pages
    world.add(2, *PROMPT[:16], 2, 2, 2, max_tokens=20)
    while len(world.answers[2]) < 1:
        if world.send() is None:
            world.receive()
    assert world.scheduler.pool.used_pages == 10
    assert world.scheduler.pool.cached_pages == cached - 4
    world.run()


def test_the_next_turn_of_a_chat_goes_on_from_the_last_page_of_the_answer() -> None:
    world = World()
    world.add(1, *PROMPT, max_tokens=7)
    world.run()
    world.add(2, *PROMPT, *world.answers[1], 50, 51)
    assert world.run() == [(2, 24, 5)]


def test_a_preempted_sequence_goes_on_from_the_last_page_that_it_had() -> None:
    world = World(pages=10)
    world.add(1, *PROMPT[:8], max_tokens=0)
    world.add(2, *PROMPT[8:], max_tokens=0)
    while not world.scheduler.figures().preemptions:
        if world.send() is None:
            world.receive()
    world.scheduler.cancel(1)
    world.over.add(1)
    chunks = [span.start for span in world.spans if span.sequence == 2]
    world.run()
    resumed = [span.start for span in world.spans if span.sequence == 2][len(chunks)]
    assert resumed >= len(PROMPT[8:]), "the prompt was not computed again"


def test_where_no_second_slot_is_to_be_had_a_sequence_goes_on_in_its_own() -> None:
    world = World(slots=2)
    world.add(1, *PROMPT[:10], max_tokens=12)
    world.add(2, *PROMPT[10:], max_tokens=12)
    world.run()
    assert all(len(span.states) == 1 for span in world.spans if span.sequence == 2)
    assert world.over == {1, 2}


def test_a_request_without_a_slot_waits() -> None:
    world = World(slots=2, max_rows=32, chunk_tokens=32)
    for number in (1, 2, 3):
        world.add(number, *range(20 * number, 20 * number + 6), max_tokens=4)
    step = world.send()
    assert step is not None
    assert [span.sequence for span in step.spans] == [1, 2]
    assert world.scheduler.figures().sequences_waiting == 1
    world.receive()
    world.run()
    assert world.over == {1, 2, 3}


def test_a_rolling_checkpoint_gives_way_to_a_request() -> None:
    world = World(slots=3, max_rows=32, chunk_tokens=32)
    world.add(1, *PROMPT[:6], max_tokens=30)
    while len(world.answers[1]) < 8:
        if world.send() is None:
            world.receive()
    assert world.slots == (2, 1, 0), "what 1 works in, its last page, and the end of its prompt"
    world.add(2, *PROMPT[6:12], max_tokens=30)
    world.add(3, *PROMPT[12:18], max_tokens=30)
    while world.scheduler.figures().sequences_waiting:
        if world.send() is None:
            world.receive()
    assert world.slots[0] == 3
    assert world.over == set(), "nobody had to end for the third"
    world.run()


def test_it_is_that_of_the_oldest_who_is_preempted_last() -> None:
    """Though 2 was admitted after 3, since it had waited for what 1 computed."""
    world = World(slots=6, max_rows=32, chunk_tokens=8)
    world.add(1, *PROMPT[:9], max_tokens=1)
    world.add(2, *PROMPT[:9], max_tokens=40)
    world.add(3, *PROMPT[10:15], max_tokens=40)
    while min(len(world.answers[2]), len(world.answers[3])) < 9:
        if world.send() is None:
            world.receive()
    for number in (4, 5, 6):
        world.add(number, *range(10 * number, 10 * number + 3), max_tokens=40)
        if world.send() is None:
            world.receive()
    begun = len(world.spans)
    for _ in range(16):
        if world.send() is None:
            world.receive()
    left_behind = {span.sequence for span in world.spans[begun:] for run in span.states if run.source != run.target}
    assert left_behind == {3}, "2 has given the slot of its last page"
    world.run()


def test_the_least_recently_used_checkpoint_is_evicted_first() -> None:
    world = World(slots=4)
    for number in (1, 2):
        world.add(number, *range(20 * number, 20 * number + 5), max_tokens=1)
        world.run()
    assert world.slots == (0, 2, 2)
    world.add(3, *range(20, 25), 9, max_tokens=1)
    assert world.run() == [(3, 4, 2)]
    for number in (4, 5):
        world.add(number, *range(20 * number, 20 * number + 5), max_tokens=1)
        world.run()
    world.add(6, *range(20, 25), 8, max_tokens=1)
    assert world.run() == [(6, 4, 2)], "1 has been used since"
    world.add(7, *range(40, 45), 8, max_tokens=1)
    assert world.run() == [(7, 0, 6)]


def test_a_page_takes_its_checkpoint_along() -> None:
    world = World(pages=8)
    world.add(1, *PROMPT)
    world.run()
    assert world.slots[1] == 2
    world.add(2, *range(50, 70))
    world.run()
    assert world.slots[1] == 2, "those of 2"
    world.add(3, *PROMPT)
    assert world.run()[0] == (3, 0, 8)


def test_a_cancelled_request_leaves_what_it_has_computed_and_keeps_no_promise() -> None:
    world = World(max_in_flight=3)
    world.add(1, *PROMPT, 30)
    world.add(2, *PROMPT, 30)
    world.send()
    world.tell(world.scheduler.cancel(1))
    assert world.send() is None, "2 waits for 1, whose step is in flight"
    world.receive()
    assert world.run()[0] == (2, 8, 8)
    assert world.slots[0] == 0


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_what_failed_is_no_checkpoint(steps: int) -> None:
    """The state that is left behind for others is in the third chunk."""
    world = World()
    prompt = (*PROMPT, 30, 31)
    world.add(1, *prompt)
    for step in range(steps + 1):
        world.send()
        world.receive(failed=(1,) if step == steps else ())
    assert world.over == {1}
    assert world.slots == (0, 0, 8)
    world.add(2, *prompt)
    assert world.run()[0] == (2, 0, 8)


def test_a_scored_text_has_a_slot_but_no_checkpoint() -> None:
    world = World()
    world.scheduler.add(SequenceRequest.scoring(1, PROMPT))
    while (step := world.scheduler.next_step()) is not None:
        assert len(step.spans[0].states) == 1
        assert world.slots == (1, 0, 7)
        world.scheduler.complete(StepResult(epoch=1, step=step.number, scores=result(step).scores))
    assert world.slots == (0, 0, 8)


@pytest.mark.parametrize("slots", [2, 8])
def test_a_lost_pipeline_takes_the_states_along(slots: int) -> None:
    world = World(slots=slots)
    world.add(1, *PROMPT, max_tokens=8)
    for _ in range(10):
        if world.send() is None:
            world.receive()
    world.scheduler.lose()
    world.pipeline.lose()
    assert world.slots == (0, 0, slots)
    world.scheduler.renew(world.capacity)
    assert world.run()[0] == (1, 0, 8)
    assert world.answers[1] == answer(PROMPT, 8)


def test_where_all_attention_has_a_window_its_pages_are_enough_beside_a_state() -> None:
    world = World(pages=8, reach_tokens=9)
    world.add(1, *PROMPT, *PROMPT, *PROMPT, max_tokens=5)
    world.run()
    world.add(2, *PROMPT, *PROMPT, *PROMPT, *world.answers[1], 50)
    assert world.run() == [(2, 64, 2)]
    assert world.spans[-2].skipped_pages == 14
