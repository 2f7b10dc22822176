"""Where every layer has a window a sequence keeps only its window, and its prefix is known by the end of it."""

from __future__ import annotations

import pytest

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from layerline.errors import RequestError
from layerline.frames import Span
from tests.fakes.paged_pipeline import PagedPipeline, answer

PAGE_TOKENS, REACH_TOKENS = 4, 9
PROMPT = tuple(range(100, 160))  # fifteen pages
RING = 5  # two that the first row of a page looks back to, and three that eight rows can lie in


class World:
    """A scheduler and pages that are really kept."""

    def __init__(self, **changes: int) -> None:
        sizes = {
            "pages": 64,
            "page_tokens": PAGE_TOKENS,
            "max_rows": 8,
            "chunk_tokens": 8,
            "context_tokens": 400,
            "max_in_flight": 2,
            "max_waiting": 8,
            "open_ended_tokens": 8,
            "reach_tokens": REACH_TOKENS,
        }
        self.capacity = Capacity(**(sizes | changes))
        self.scheduler = Scheduler(self.capacity)
        self.pipeline = PagedPipeline(PAGE_TOKENS, self.capacity.reach_tokens)
        self.answers: dict[int, list[int]] = {}
        self.most_pages_used = 0

    def add(self, sequence: int, *token_ids: int, max_tokens: int = 2) -> None:
        self.answers[sequence] = []
        self.scheduler.add(SequenceRequest(sequence=sequence, token_ids=token_ids, max_tokens=max_tokens))

    def send(self) -> Step | None:
        step = self.scheduler.next_step()
        if step is not None:
            self.pipeline.send(step)
        self.scheduler.check()
        self.most_pages_used = max(self.most_pages_used, self.scheduler.figures().pages_used)
        return step

    def receive(self) -> None:
        for event in self.scheduler.complete(self.pipeline.receive()):
            if hasattr(event, "token_id"):
                self.answers[event.sequence].append(event.token_id)

    def run(self) -> list[Span]:
        """To the end; every span that went out."""
        spans: list[Span] = []
        while not self.scheduler.idle:
            if step := self.send():
                spans.extend(step.spans)
            else:
                self.receive()
        return spans


def test_the_ring_is_what_a_step_reads_and_writes() -> None:
    assert World().capacity.sequence_pages == RING
    assert World(context_tokens=16).capacity.sequence_pages == 4
    assert World(reach_tokens=0).capacity.sequence_pages == 100


@pytest.mark.parametrize("max_tokens", [0, 300])
def test_a_sequence_many_times_as_long_as_its_window_never_has_more_pages_than_the_ring(max_tokens: int) -> None:
    world = World(pages=RING)
    world.add(1, *PROMPT, max_tokens=max_tokens)
    spans = world.run()
    assert world.answers[1] == answer(PROMPT, max_tokens or 340)
    assert world.most_pages_used == RING
    assert max(len(span.pages) for span in spans) <= RING
    assert spans[-1].skipped_pages == spans[-1].start // PAGE_TOKENS - 2


def test_as_many_sequences_as_there_are_rings_run_side_by_side_without_preemption() -> None:
    world = World(pages=3 * RING)
    for number in range(3):
        world.add(number, number, *PROMPT, max_tokens=100)
    world.run()
    assert world.answers == {number: answer((number, *PROMPT), 100) for number in range(3)}
    figures = world.scheduler.figures()
    assert (figures.preemptions, world.most_pages_used) == (0, 3 * RING)


@pytest.mark.parametrize("pages", [RING, 2 * RING, 64])
def test_pages_stay_neighbours(pages: int) -> None:
    world = World(pages=pages)
    world.add(1, *PROMPT, max_tokens=300)
    assert max(len(span.pages) for span in world.run()) <= 2


def test_what_is_cached_behind_the_window_gives_way() -> None:
    world = World(pages=RING + 2)
    world.add(1, *PROMPT, max_tokens=100)
    world.run()
    assert world.scheduler.figures().preemptions == 0
    assert world.scheduler.pool.free_pages + world.scheduler.pool.cached_pages == RING + 2


def test_the_next_turn_goes_on_from_the_window_though_the_rest_is_gone() -> None:
    world = World(pages=RING)
    world.add(1, *PROMPT, max_tokens=5)
    world.run()
    world.add(2, *PROMPT, *world.answers[1], 7, 8)
    step = world.send()
    assert step is not None
    assert [(span.start, span.count, span.skipped_pages) for span in step.spans] == [(64, 3, 14)]
    world.run()
    assert world.answers[2] == answer((*PROMPT, *answer(PROMPT, 5), 7, 8), 2)


def test_a_prefix_whose_last_pages_are_gone_is_computed_again() -> None:
    world = World(pages=RING)
    world.add(1, *PROMPT, max_tokens=5)
    world.run()
    world.add(2, *PROMPT[:30], 7)
    spans = world.run()
    assert spans[0].start == 0
    assert world.answers[2] == answer((*PROMPT[:30], 7), 2)


def test_pages_that_come_anew_fill_the_gaps_that_others_left() -> None:
    world = World(pages=4 * RING)
    world.add(1, *PROMPT, max_tokens=20)
    world.run()
    world.add(2, *range(90), max_tokens=1)  # the pages of 1 give way to these, and most of the prompt's are gaps
    world.run()
    world.add(3, *PROMPT, max_tokens=1)
    assert world.run()[0].start < 52
    world.add(4, *PROMPT, max_tokens=1)
    assert world.run()[0].start == 56
    assert world.answers[4] == answer(PROMPT, 1)


def test_forks_of_a_long_prompt_prefill_it_once() -> None:
    world = World()
    first = SequenceRequest(sequence=1, token_ids=PROMPT, max_tokens=40)
    for index in range(3):
        world.answers[1 + index] = []
        world.scheduler.add(first.fork(1 + index, index))
    world.run()
    assert world.answers == dict.fromkeys((1, 2, 3), answer(PROMPT, 40))
    assert world.scheduler.figures().hit_tokens == 2 * 56


def test_sequences_that_share_more_than_they_can_replace_wait_and_are_right() -> None:
    world = World(pages=RING + 3)
    first = SequenceRequest(sequence=1, token_ids=PROMPT, max_tokens=40)
    for index in range(3):
        world.answers[1 + index] = []
        world.scheduler.add(first.fork(1 + index, index))
    world.run()
    assert world.answers == dict.fromkeys((1, 2, 3), answer(PROMPT, 40))
    assert world.most_pages_used <= RING + 3


def test_a_cancelled_sequence_leaves_nothing() -> None:
    world = World(pages=2 * RING)
    world.add(1, *PROMPT, max_tokens=100)
    for _ in range(20):
        if world.send() is None:
            world.receive()
    world.scheduler.cancel(1)
    while world.pipeline.in_flight:
        world.receive()
    assert world.scheduler.pool.used_pages == 0
    world.scheduler.check()


def test_a_pool_smaller_than_the_ring_bounds_the_answer() -> None:
    world = World(pages=RING - 1)
    world.add(1, 5, 6, 7, max_tokens=0)
    world.run()
    assert world.answers[1] == answer((5, 6, 7), 14)
    with pytest.raises(RequestError, match=r"memory for 60 tokens of prompt and 1 of answer; the nodes .* for 16"):
        world.add(2, *PROMPT, max_tokens=0)
