"""Prefixes shared between requests, turns and forks: these events go in, exactly these steps come out."""

from __future__ import annotations

import random
from collections import Counter

from coordinator.scheduling.events import Ended, Event, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from layerline.errors import OverloadedError
from layerline.frames import Sampling
from layerline.step_result import SampledToken, StepResult
from tests.fakes.paged_pipeline import PagedPipeline, answer
from tests.fakes.schedulers import scheduler

PROMPT = tuple(range(10, 30))  # five pages


def request(sequence: int, *token_ids: int, max_tokens: int = 2) -> SequenceRequest:
    return SequenceRequest(sequence=sequence, token_ids=token_ids, max_tokens=max_tokens)


def issued(step: Step | None) -> list[tuple[int, int, int]]:
    """(sequence, start, count) of each span."""
    assert step is not None
    return [(span.sequence, span.start, span.count) for span in step.spans]


def pages(step: Step | None, sequence: int) -> list[tuple[int, int]]:
    """The page runs of a sequence, as (first, count)."""
    assert step is not None
    return [(run.first, run.count) for span in step.spans if span.sequence == sequence for run in span.pages]


def back(world: Scheduler, step: Step | None, token_id: int = 7) -> None:
    """Every sequence of the step that is to have a token has `token_id`."""
    assert step is not None
    sampled = tuple(
        SampledToken(sequence=number, position=position, token_id=token_id)
        for number, position in sorted(step.sampled_positions())
    )
    world.complete(StepResult(epoch=1, step=step.number, sampled=sampled))


def run_to_the_end(world: Scheduler) -> None:
    while (step := world.next_step()) is not None:
        back(world, step)


def test_a_second_request_computes_only_what_differs() -> None:
    world = scheduler()
    world.add(request(1, *PROMPT))
    run_to_the_end(world)
    world.add(request(2, *PROMPT[:18], 90, 91))
    step = world.next_step()
    assert issued(step) == [(2, 16, 4)]
    assert pages(step, 2) == [(0, 4), (5, 1)], "four pages shared, the fifth its own"


def test_the_last_token_of_a_known_prompt_is_computed_for_its_logits() -> None:
    world = scheduler()
    world.add(request(1, *PROMPT))
    run_to_the_end(world)
    world.add(request(2, *PROMPT))
    assert issued(world.next_step()) == [(2, 16, 4)]


def test_the_next_turn_of_a_chat_finds_the_answer_too() -> None:
    world = scheduler()
    world.add(request(1, *PROMPT, max_tokens=6))
    run_to_the_end(world)
    world.add(request(2, *PROMPT, 7, 7, 7, 7, 7, 7, 50))
    assert issued(world.next_step()) == [(2, 24, 3)], "the answer's fifth token filled a page, its last was never sent"
    figures = world.figures()
    assert (figures.lookup_tokens, figures.hit_tokens) == (20 + 27, 24)


def test_pages_are_offered_while_a_prompt_is_prefilled_but_not_before_they_are_computed() -> None:
    world = scheduler(max_in_flight=3)
    world.add(request(1, *PROMPT))
    first, second = world.next_step(), world.next_step()
    world.add(request(2, *PROMPT[:10], 90))
    third = world.next_step()
    assert issued(third) == [(1, 16, 4)], "2 waits for two pages that are on their way"
    back(world, first)
    assert issued(world.next_step()) == [(2, 8, 3)]
    back(world, second)
    back(world, third)
    assert world.figures().hit_tokens == 8


def test_a_request_that_waits_for_a_prefix_holds_nobody_up() -> None:
    world = scheduler()
    world.add(request(1, *PROMPT))
    world.next_step()
    world.add(request(2, *PROMPT))
    world.add(request(3, 90, 91))
    assert issued(world.next_step()) == [(1, 8, 6), (3, 0, 2)]


def test_a_request_computes_for_itself_what_a_cancelled_one_leaves_undone() -> None:
    world = scheduler()
    world.add(request(1, *PROMPT))
    first = world.next_step()
    world.add(request(2, *PROMPT))
    world.cancel(1)
    assert world.next_step() is None
    back(world, first)
    assert issued(world.next_step()) == [(2, 8, 8)]


def test_forks_prefill_a_prompt_once_and_draw_differently() -> None:
    world = scheduler(max_in_flight=1, max_rows=32, chunk_tokens=32)
    one = SequenceRequest(sequence=1, token_ids=PROMPT, max_tokens=3, sampling=Sampling(temperature=1.0, seed=5))
    for index in range(3):
        world.add(one.fork(1 + index, index))
    prefill = world.next_step()
    assert issued(prefill) == [(1, 0, 20)]
    back(world, prefill)
    step = world.next_step()
    assert issued(step) == [(1, 20, 1), (2, 16, 4), (3, 16, 4)]
    assert step is not None
    assert [span.sampling.seed for span in step.spans if span.sampling] == [5, 6, 7]
    assert [pages(step, number)[0] for number in (1, 2, 3)] == [(0, 6), (0, 4), (0, 4)]
    assert one.fork(4, 2**64).sampling.seed == 5


def test_cached_pages_give_way_to_a_request() -> None:
    world = scheduler(pages=8)
    world.add(request(1, *PROMPT))
    run_to_the_end(world)
    assert world.pool.cached_pages == 5
    world.add(request(2, *range(50, 70)))
    run_to_the_end(world)
    world.add(request(3, *PROMPT))
    assert issued(world.next_step()) == [(3, 8, 8)], "of five pages three were evicted, from the end"


def test_what_a_request_is_about_to_use_is_not_evicted_for_it() -> None:
    world = scheduler(pages=6)
    world.add(request(1, *PROMPT))
    run_to_the_end(world)
    world.add(request(2, *PROMPT[:8], *range(50, 64)))
    step = world.next_step()
    assert issued(step) == [(2, 8, 8)]
    assert pages(step, 2)[0][0] == 0
    world.check()


def test_cached_pages_give_way_before_anybody_is_preempted() -> None:
    world = scheduler(pages=6, max_in_flight=1)
    world.add(request(1, *range(50, 58)))
    run_to_the_end(world)
    world.add(request(2, 1, 2, 3, 4, max_tokens=0))
    world.add(request(3, 5, 6, max_tokens=3))
    for _ in range(12):
        back(world, world.next_step())
    figures = world.figures()
    assert (figures.preemptions, figures.pages_cached) == (0, 1), "what 1 had is gone; 3 has left a page"


def test_nothing_is_shared_of_what_a_lost_stage_held() -> None:
    world = scheduler()
    world.add(request(1, *PROMPT))
    run_to_the_end(world)
    world.lose()
    assert world.figures().pages_cached == 0
    world.add(request(2, *PROMPT))
    assert issued(world.next_step()) == [(2, 0, 8)]


def test_figures_tell_how_things_stand() -> None:
    world = scheduler(max_in_flight=1)
    world.add(request(1, 1, 2, 3, max_tokens=5))
    back(world, world.next_step())
    world.add(request(2, *PROMPT))
    world.next_step()
    world.add(request(3, *PROMPT))
    figures = world.figures()
    assert (figures.sequences_waiting, figures.sequences_prefilling, figures.sequences_decoding) == (1, 1, 1)
    assert (figures.pages_used, figures.pages_cached, figures.pages_free) == (8, 0, 56)
    assert (figures.steps, figures.steps_in_flight, figures.decode_rows, figures.prompt_rows) == (2, 1, 1, 11)
    world.cancel(2)
    assert world.figures().sequences_leaving == 1


def test_a_thousand_random_cancels_leave_nothing() -> None:
    """With forks, hits, small memory and losses between; what is answered to the end is right."""
    luck = random.Random(11)
    world = scheduler(pages=40, max_in_flight=3, max_waiting=32)
    pipeline = PagedPipeline(4)
    requests: dict[int, SequenceRequest] = {}
    answers: dict[int, list[int]] = {}
    reasons: Counter[str] = Counter()

    def tell(events: tuple[Event, ...]) -> None:
        for event in events:
            if isinstance(event, Ended):
                reasons[event.reason] += 1
                whole = answer(requests[event.sequence].token_ids, 12)
                assert answers[event.sequence] == whole[: len(answers[event.sequence])]
                assert event.reason == "cancelled" or answers[event.sequence] == whole
                del requests[event.sequence]
            else:
                assert isinstance(event, Token)
                answers[event.sequence].append(event.token_id)

    number = 0
    while reasons["cancelled"] < 1000:
        move = luck.random()
        if move < 0.2:
            number += 1
            prompt = PROMPT[: luck.randrange(21)] + tuple(luck.randrange(3) for _ in range(luck.randrange(1, 15)))
            requests[number], answers[number] = request(number, *prompt, max_tokens=12), []
            try:
                world.add(requests[number])
            except OverloadedError:
                del requests[number]
        elif move < 0.35 and requests:
            tell(world.cancel(luck.choice(list(requests))))
        elif move < 0.65 and (step := world.next_step()) is not None:
            pipeline.send(step)
        elif move < 0.999 and pipeline.in_flight:
            tell(world.complete(pipeline.receive()))
        elif move >= 0.999:
            world.lose()
            pipeline.lose()
    while not world.idle:
        if (step := world.next_step()) is not None:
            pipeline.send(step)
        else:
            tell(world.complete(pipeline.receive()))
    assert reasons["length"] > 100
    assert not requests
    assert world.pool.used_pages == 0
    world.check()
    world.lose()
    assert world.pool.free_pages == 40
