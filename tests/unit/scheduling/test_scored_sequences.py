"""Texts to be scored: these events go in, exactly these steps and events come out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.scheduling.events import Ended, Event, Failed, Scored, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from layerline.errors import PromptTooLongError, ProtocolError
from layerline.step_result import StepResult, TokenScores
from tests.fakes.schedulers import capacity, request, result, scheduler

TEXT = tuple(range(10, 31))


def scoring(sequence: int, tokens: int = len(TEXT)) -> SequenceRequest:
    return SequenceRequest.scoring(sequence, TEXT[:tokens])


def issued(step: Step | None) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """(sequence, start, count, the ids that are to be scored) of each span."""
    assert step is not None
    return [(span.sequence, span.start, span.count, span.next_ids) for span in step.spans]


def back(step: Step | None) -> StepResult:
    """The step's result; a token that is wanted is 7."""
    assert step is not None
    return result(step, **{f"_{span.sequence}": 7 for span in step.spans if span.sampling})


def run_to_the_end(world: Scheduler) -> None:
    while (step := world.next_step()) is not None:
        world.complete(back(step))


def scored(sequence: int, start: int, end: int) -> Scored:
    """The event of the tokens at places `start` to `end` of TEXT."""
    ids = TEXT[start:end]
    return Scored(sequence=sequence, position=start, log_probabilities=tuple(-float(id_) for id_ in ids))


def test_a_text_goes_out_in_chunks_without_its_last_token_and_ends_with_its_last_score() -> None:
    world = scheduler(max_in_flight=3)
    world.add(scoring(1))
    steps = [world.next_step() for _ in range(3)]
    assert [issued(step) for step in steps] == [
        [(1, 0, 8, TEXT[1:9])],
        [(1, 8, 8, TEXT[9:17])],
        [(1, 16, 4, TEXT[17:21])],
    ]
    assert world.next_step() is None
    assert world.figures().sequences_prefilling == 1, "though all of it is issued"
    assert world.complete(back(steps[0])) == (scored(1, 1, 9),)
    assert world.complete(back(steps[1])) == (scored(1, 9, 17),)
    assert world.complete(back(steps[2])) == (scored(1, 17, 21), Ended(sequence=1, reason="length"))
    assert world.idle
    assert world.pool.free_pages == world.pool.pages


def test_two_tokens_are_enough_for_a_score() -> None:
    world = scheduler()
    world.add(scoring(1, 2))
    step = world.next_step()
    assert issued(step) == [(1, 0, 1, TEXT[1:2])]
    assert world.complete(back(step)) == (scored(1, 1, 2), Ended(sequence=1, reason="length"))


def test_the_end_of_a_text_holds_no_prompt_up_as_an_answer_would() -> None:
    """While its last chunk is under way no sequence decodes, so that the next step has all the rows of a chunk."""
    world = scheduler(max_in_flight=1)
    world.add(scoring(1, 4))
    world.next_step()
    world.add(SequenceRequest.scoring(2, tuple(range(50, 90))))
    assert [entry[:3] for entry in issued(world.next_step())] == [(2, 0, 8)]


def test_texts_share_steps_with_answers() -> None:
    world = scheduler(max_in_flight=1)
    world.add(request(9, 2))
    first = world.next_step()
    world.add(scoring(1, 5))
    assert world.complete(back(first)) == (Token(sequence=9, token_id=7, position=2, first=True),)
    step = world.next_step()
    assert issued(step) == [(9, 2, 1, ()), (1, 0, 4, TEXT[1:5])]
    assert step is not None
    assert (step.decode_rows, step.prompt_rows) == (1, 4)
    assert scored(1, 1, 5) in world.complete(back(step))


@pytest.mark.parametrize("before", [1, 2])
def test_a_text_begins_with_no_prefix_of_others_and_leaves_none(before: int) -> None:
    world = scheduler()
    for sequence in range(before):
        world.add(replace(request(sequence, 0), token_ids=TEXT, max_tokens=1))
        run_to_the_end(world)
    assert world.pool.cached_pages == 5
    world.add(scoring(9))
    step = world.next_step()
    assert [entry[:3] for entry in issued(step)] == [(9, 0, 8)]
    world.complete(back(step))
    run_to_the_end(world)
    assert world.pool.cached_pages == 5
    figures = world.figures()
    assert (figures.lookup_tokens, figures.hit_tokens) == (before * len(TEXT), 20 * (before - 1))


def test_equal_texts_and_prompts_do_not_wait_for_each_other() -> None:
    world = scheduler()
    world.add(scoring(1))
    world.next_step()
    world.add(scoring(2))
    world.add(replace(request(3, 0), token_ids=TEXT))
    world.next_step()
    assert world.figures().sequences_prefilling == 3


def test_after_a_loss_all_is_computed_and_only_the_rest_is_scored() -> None:
    world = scheduler(max_in_flight=2)
    world.add(scoring(1))
    first, _ = world.next_step(), world.next_step()
    world.complete(back(first))
    assert world.lose() == (1,)
    assert world.renew(capacity(chunk_tokens=6, max_in_flight=3)) == ()
    steps = [world.next_step() for _ in range(4)]
    assert [issued(step) for step in steps] == [
        [(1, 0, 6, ())],
        [(1, 6, 6, TEXT[9:13])],
        [(1, 12, 6, TEXT[13:19])],
        [(1, 18, 2, TEXT[19:21])],
    ]
    assert world.complete(back(steps[0])) == ()
    assert world.complete(back(steps[1])) == (scored(1, 9, 13),)
    assert world.complete(back(steps[2])) == (scored(1, 13, 19),)
    assert world.complete(back(steps[3]))[-1] == Ended(sequence=1, reason="length")


def test_a_text_that_the_next_pipeline_cannot_hold_has_failed() -> None:
    world = scheduler()
    world.add(scoring(1))
    world.next_step()
    world.lose()
    (event,) = world.renew(capacity(context_tokens=20))
    assert isinstance(event, Failed)


@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_a_text_that_is_cancelled_gives_everything_back(chunks: int) -> None:
    world = scheduler(max_in_flight=3)
    world.add(scoring(1))
    steps = [world.next_step() for _ in range(chunks)]
    assert world.cancel(1) == (Ended(sequence=1, reason="cancelled"),)
    for step in steps:
        assert world.complete(back(step)) == ()
    assert world.idle
    assert world.pool.free_pages == world.pool.pages


def test_a_text_that_is_preempted_tells_no_score_twice() -> None:
    """The answer before it has no limit, and takes its pages while it is prefilled."""
    world = scheduler(pages=7, max_in_flight=1, max_rows=4, chunk_tokens=3, open_ended_tokens=4)
    world.add(replace(request(1, 4), max_tokens=0))
    world.complete(back(world.next_step()))
    world.add(scoring(2))
    events: list[Event] = []
    while not world.idle:
        events += world.complete(back(world.next_step()))
    assert world.figures().preemptions > 0
    scores = [score for event in events if isinstance(event, Scored) for score in event.log_probabilities]
    assert scores == [-float(id_) for id_ in TEXT[1:]]


def test_the_context_bounds_a_text() -> None:
    world = scheduler(context_tokens=20)
    world.add(scoring(1, 20))
    with pytest.raises(PromptTooLongError):
        world.add(scoring(2, 21))


def test_scores_of_a_sequence_that_is_not_numbers_are_not_expected() -> None:
    world = scheduler()
    world.add(scoring(1))
    step = world.next_step()
    (event,) = world.complete(replace(back(step), scores=(), failed=(1,)))
    assert isinstance(event, Failed)


@pytest.mark.parametrize(
    "scores",
    [
        (),
        (TokenScores(sequence=1, position=1, log_probabilities=(-1.0,) * 7),),
        (TokenScores(sequence=1, position=2, log_probabilities=(-1.0,) * 8),),
        (TokenScores(sequence=2, position=1, log_probabilities=(-1.0,) * 8),),
        (TokenScores(sequence=1, position=1, log_probabilities=(-1.0,) * 8),) * 2,
    ],
)
def test_scores_that_were_not_asked_for_are_refused_unchanged(scores: tuple[TokenScores, ...]) -> None:
    world = scheduler()
    world.add(scoring(1))
    step = world.next_step()
    with pytest.raises(ProtocolError, match="returned scores of the sequences, positions and numbers"):
        world.complete(replace(back(step), scores=scores))
    assert world.complete(back(step)) == (scored(1, 1, 9),)


def test_a_request_with_a_score_for_some_tokens_only_is_refused() -> None:
    with pytest.raises(ValueError, match="after each of its tokens"):
        SequenceRequest(sequence=1, token_ids=(1, 2, 3), next_ids=(2, 3))
