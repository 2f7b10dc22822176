"""Small scripted worlds: these events go in, exactly these steps and events come out."""

from __future__ import annotations

import pytest

from coordinator.scheduling.events import Ended, Token
from coordinator.scheduling.sequence import SequenceRequest
from layerline.errors import OverloadedError, PromptTooLongError, ProtocolError, RequestError
from layerline.step_result import SampledToken, StepResult
from tests.fakes.schedulers import CAPACITY, issued, request, result, scheduler


def test_one_request_from_prompt_to_length() -> None:
    world = scheduler()
    world.add(request(1, 3, max_tokens=2))
    step = world.next_step()
    assert issued(step) == [(1, 0, 3, True)]
    assert step is not None
    assert step.token_ids == (100, 101, 102)
    assert world.next_step() is None
    assert world.complete(result(step, _1=7)) == (Token(sequence=1, token_id=7, position=3, first=True),)
    step = world.next_step()
    assert issued(step) == [(1, 3, 1, True)]
    assert world.complete(result(step, _1=8)) == (
        Token(sequence=1, token_id=8, position=4, first=False),
        Ended(sequence=1, reason="length"),
    )
    assert world.idle
    assert world.next_step() is None
    assert world.pool.used_pages == 0
    assert world.pool.cached_pages == 1, "the one that was computed to its end"


def test_an_end_token_is_told_and_ends() -> None:
    world = scheduler()
    world.add(request(1, 3, stop_ids=frozenset({9})))
    assert world.complete(result(world.next_step(), _1=9)) == (
        Token(sequence=1, token_id=9, position=3, first=True),
        Ended(sequence=1, reason="stop"),
    )
    assert world.idle


def test_the_context_ends_an_answer() -> None:
    world = scheduler(context_tokens=5)
    world.add(request(1, 3, max_tokens=50))
    world.complete(result(world.next_step(), _1=7))
    assert world.complete(result(world.next_step(), _1=8))[-1] == Ended(sequence=1, reason="length")


def test_the_chunks_of_one_prompt_follow_each_other_without_waiting() -> None:
    world = scheduler(max_in_flight=3)
    world.add(request(1, 20))
    steps = [world.next_step() for _ in range(3)]
    assert [issued(step) for step in steps] == [[(1, 0, 8, False)], [(1, 8, 8, False)], [(1, 16, 4, True)]]
    assert world.next_step() is None
    assert world.complete(result(steps[0])) == ()
    assert world.next_step() is None, "the token that comes next is not known yet"
    assert world.complete(result(steps[1])) == ()
    assert world.complete(result(steps[2], _1=7)) == (Token(sequence=1, token_id=7, position=20, first=True),)
    assert issued(world.next_step()) == [(1, 20, 1, True)]


def test_short_prompts_share_a_step_and_the_rest_of_a_chunk() -> None:
    world = scheduler()
    for sequence, prompt_tokens in ((1, 3), (2, 2), (3, 9)):
        world.add(request(sequence, prompt_tokens))
    assert issued(world.next_step()) == [(1, 0, 3, True), (2, 0, 2, True), (3, 0, 3, False)]
    assert issued(world.next_step()) == [(3, 3, 6, True)]


def test_decodes_go_on_while_a_prompt_is_prefilled() -> None:
    world = scheduler(max_in_flight=1)
    world.add(request(1, 2))
    first = world.next_step()
    world.add(request(2, 20))
    world.complete(result(first, _1=7))
    step = world.next_step()
    assert issued(step) == [(1, 2, 1, True), (2, 0, 8, False)]
    world.complete(result(step, _1=8))
    assert issued(world.next_step()) == [(1, 3, 1, True), (2, 8, 8, False)]


def test_decoding_sequences_are_spread_over_the_steps_in_flight() -> None:
    world = scheduler(max_in_flight=2)
    for sequence in range(1, 6):
        world.add(request(sequence, 1))
    world.complete(result(world.next_step(), _1=7, _2=7, _3=7, _4=7, _5=7))
    one, two = world.next_step(), world.next_step()
    assert issued(one) == [(1, 1, 1, True), (2, 1, 1, True), (3, 1, 1, True)]
    assert issued(two) == [(4, 1, 1, True), (5, 1, 1, True)]
    world.complete(result(one, _1=7, _2=7, _3=7))
    assert issued(world.next_step()) == [(1, 2, 1, True), (2, 2, 1, True), (3, 2, 1, True)]


def test_many_decodes_leave_rows_to_prompts() -> None:
    world = scheduler(max_in_flight=1, max_rows=4, chunk_tokens=4)
    for sequence in range(1, 5):
        world.add(request(sequence, 1))
    step = world.next_step()
    world.add(request(9, 2))
    world.complete(result(step, _1=7, _2=7, _3=7, _4=7))
    world.cancel(4)
    step = world.next_step()
    assert issued(step) == [(1, 1, 1, True), (2, 1, 1, True), (3, 1, 1, True), (9, 0, 1, False)]
    for sequence in range(10, 12):
        world.add(request(sequence, 1))
    world.complete(result(step, _1=7, _2=7, _3=7))
    assert issued(world.next_step())[-1] == (9, 1, 1, True)


@pytest.mark.parametrize(
    ("refused", "error", "says"),
    [
        (request(1, 0), RequestError, "prompt is empty"),
        (request(1, 100), PromptTooLongError, "has 100 tokens; the context holds 100"),
        (request(1, 30, max_tokens=30), RequestError, "30 tokens of prompt and 30 of answer; .* for 40"),
        (request(1, 42, max_tokens=0), RequestError, "42 tokens of prompt and 1 of answer"),
    ],
)
def test_what_can_never_be_answered_is_refused(refused: SequenceRequest, error: type[RequestError], says: str) -> None:
    world = scheduler(pages=10)
    with pytest.raises(error, match=says):
        world.add(refused)
    assert world.idle


def test_the_largest_request_that_fits_is_taken() -> None:
    world = scheduler(pages=10)
    world.add(request(1, 30, max_tokens=11))
    assert world.next_step() is not None
    assert world.pool.free_pages == 0


def test_a_full_queue_says_so() -> None:
    world = scheduler(max_waiting=2)
    world.add(request(1, 2))
    world.add(request(2, 2))
    with pytest.raises(OverloadedError, match=r"2 requests are waiting .* in about 1 s") as refusal:
        world.add(request(3, 2))
    assert refusal.value.retry_after_s == 1
    world.next_step()
    world.add(request(3, 2))


@pytest.mark.parametrize("tokens", [{}, {"_2": 7}, {"_1": 7, "_2": 7}])
def test_a_result_with_other_sequences_is_refused_unchanged(tokens: dict[str, int]) -> None:
    world = scheduler()
    world.add(request(1, 2))
    step = world.next_step()
    with pytest.raises(ProtocolError, match="wanted were"):
        world.complete(result(step, **tokens))
    assert world.complete(result(step, _1=7))


def test_a_result_given_twice_or_out_of_order_is_refused() -> None:
    world = scheduler()
    world.add(request(1, 12))
    first, second = world.next_step(), world.next_step()
    with pytest.raises(ProtocolError, match="the step due is 1"):
        world.complete(result(second, _1=7))
    doubled = SampledToken(sequence=1, position=12, token_id=7)
    world.complete(result(first))
    with pytest.raises(ProtocolError):
        world.complete(StepResult(epoch=1, step=2, sampled=(doubled, doubled)))
    world.complete(result(second, _1=7))
    with pytest.raises(ProtocolError, match="the step due is none"):
        world.complete(result(second, _1=7))


def test_a_step_becomes_a_frame_of_token_ids() -> None:
    world = scheduler()
    world.add(request(1, 2))
    step = world.next_step()
    assert step is not None
    frame = step.frame(epoch=5)
    assert (frame.epoch, frame.step, frame.rows, frame.spans) == (5, 1, 2, step.spans)
    assert frame.tensor.data == bytes([100, 0, 0, 0, 101, 0, 0, 0])


@pytest.mark.parametrize("field", list(CAPACITY))
def test_a_capacity_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        scheduler(**{field: 0})
