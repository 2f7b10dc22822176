"""Where slots are few: who gets one, within which step, and who does not wait for a state that will not come."""

from __future__ import annotations

from coordinator.scheduling.sequence import SequenceRequest
from tests.fakes.recurrent_world import World

PROMPT = tuple(range(10, 30))  # five pages


def test_requests_with_one_preamble_prefill_it_once_wherever_it_ends() -> None:
    world = World(max_waiting=20, slots=20)
    for number in range(1, 11):
        world.add(number, *PROMPT[:16], *[number] * 9)
    assert sum(count for _, _, count in world.run()) == 16 + 10 * 9


def test_nobody_waits_for_a_state_that_a_sequence_is_past() -> None:
    world = World(max_in_flight=3)
    world.add(1, *PROMPT)
    world.send()
    world.send()
    world.add(2, *PROMPT[:8], 90, 91)
    world.send()
    world.receive()
    world.send()
    assert world.spans[-1].sequence == 2, "the pages up to where they part are there, and no state comes"
    world.run()


def test_a_checkpoint_that_a_step_reads_is_not_written_in_it() -> None:
    world = World(slots=3, max_rows=32, chunk_tokens=32)
    world.add(1, *PROMPT[:5], max_tokens=1)
    world.run()
    world.add(2, *PROMPT[:5], 90, max_tokens=1)
    world.add(3, *range(50, 56), max_tokens=1)
    world.send()
    assert [(span.sequence, span.start, len(span.states)) for span in world.spans[-2:]] == [(2, 4, 1), (3, 0, 1)]
    world.receive()
    world.run()


def test_a_rolling_checkpoint_gives_way_in_the_step_after_that_which_left_it() -> None:
    world = World(slots=2)
    world.add(1, *PROMPT[:3], max_tokens=20)
    while world.slots[0] < 2:
        if world.send() is None:
            world.receive()
        if world.pipeline.in_flight == 0 and len(world.answers[1]) == 2:
            world.add(2, *PROMPT[3:6], max_tokens=20)
            step = world.send()
            assert step is not None
            assert [span.sequence for span in step.spans] == [1]
            assert len(step.spans[0].states) == 1
            break
    assert world.slots == (2, 0, 0)
    world.receive()
    step = world.send()
    assert step is not None
    assert [span.sequence for span in step.spans] == [1, 2]
    world.run()


def test_nobody_waits_for_a_state_that_no_slot_was_there_for() -> None:
    world = World(slots=3)
    world.add(1, *PROMPT[:6], max_tokens=60)
    while len(world.answers[1]) < 8:
        if world.send() is None:
            world.receive()
    first = SequenceRequest(sequence=2, token_ids=tuple(range(50, 69)), max_tokens=30)
    world.put(first)
    world.put(first.fork(3, 1))
    world.run()
    spans = [span.sequence for span in world.spans]
    assert spans.index(3) < len(spans) - 1 - spans[::-1].index(2), "the fork began before the first ended"


def test_a_rolling_checkpoint_does_not_cost_one_that_was_used_since() -> None:
    world = World(slots=3)
    world.add(1, *PROMPT[:5], max_tokens=1)
    world.run()
    world.add(2, *range(50, 53), max_tokens=20)
    world.add(3, *range(60, 63), max_tokens=20)
    world.send()
    world.add(4, *PROMPT[:5], 90, max_tokens=1)
    world.receive()
    assert world.run() == [(4, 4, 2)], "it waited for a slot, and its prefix was kept for it"


def test_a_state_is_kept_when_the_step_that_leaves_it_is_back_and_not_before() -> None:
    world = World(max_in_flight=3)
    world.add(1, *PROMPT, 30, 31)
    for _ in range(3):
        world.send()
    used = []
    for _ in range(3):
        used.append(world.slots)
        world.receive()
    assert used == [(2, 0, 6)] * 3
    assert world.slots == (1, 1, 6)
    world.add(2, *PROMPT, 30, 32)
    assert world.run()[-1] == (2, 20, 2)


def test_a_few_rows_behind_a_checkpoint_leave_none() -> None:
    world = World()
    world.add(1, *PROMPT)
    world.run()
    world.add(2, *PROMPT[:18], 90)
    world.send()
    assert world.spans[-1].start == 16
    assert len(world.spans[-1].states) == 1
    assert world.slots[0] == 1, "what it goes on from is cached again"
    world.receive()
    world.run()
