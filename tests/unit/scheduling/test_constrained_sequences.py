"""Sequences that obey a constraint: masks, tokens that must come, and ends; and answers of a least length."""

from __future__ import annotations

from dataclasses import replace

from coordinator.scheduling.events import Ended, Event, Failed, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.step import Step
from layerline.errors import RequestError
from layerline.step_result import StepResult
from layerline.token_mask import TokenMask
from tests.fakes.schedulers import issued, request, result, scheduler

ANY = TokenMask.forbidding([500])


class Script:
    """After each drawn token come those that `forced` has for it; the answer is over after `most` of all."""

    def __init__(self, forced: dict[int, tuple[int, ...]], most: int = 100, failure: str = "") -> None:
        self.forced = forced
        self.most = most
        self.failure = ""
        self.taken: list[int] = []
        self._fails_with = failure

    @property
    def is_over(self) -> bool:
        return len(self.taken) >= self.most

    def mask(self) -> TokenMask | None:
        return ANY

    def take(self, token_id: int) -> tuple[int, ...]:
        self.failure = self._fails_with
        forced = self.forced.get(token_id, ())
        self.taken += [token_id, *forced]
        return forced

    def fork(self) -> Script:
        return Script(self.forced, self.most, self._fails_with)


def tokens_of(world: Scheduler, step: Step | None, **drawn: int) -> list[int]:
    return [event.token_id for event in world.complete(result(step, **drawn)) if isinstance(event, Token)]


def test_what_must_come_is_sent_in_one_step_that_draws_once() -> None:
    world = scheduler()
    world.add(request(1, 3, max_tokens=9, constraint=Script({7: (8, 9, 10)})))
    step = world.next_step()
    assert step is not None
    assert step.spans[0].sampling is not None
    assert step.spans[0].sampling.mask == ANY
    assert tokens_of(world, step, _1=7) == [7, 8, 9, 10]
    step = world.next_step()
    assert issued(step) == [(1, 3, 4, True)]
    assert step is not None
    assert (step.token_ids, step.decode_rows, step.spans[0].draws) == ((7, 8, 9, 10), 4, 1)
    assert world.next_step() is None
    assert tokens_of(world, step, _1=20) == [20]
    assert issued(world.next_step()) == [(1, 7, 1, True)]


def test_what_must_come_waits_for_room_in_a_step() -> None:
    world = scheduler(max_rows=4, chunk_tokens=4)
    world.add(request(1, 3, max_tokens=20, constraint=Script({7: tuple(range(20, 29))})))
    assert len(tokens_of(world, world.next_step(), _1=7)) == 10
    spans, steps = [], []
    while (step := world.next_step()) is not None:
        spans += issued(step)
        steps.append(step)
        if not spans[-1][3]:
            world.complete(result(step))
    assert [count for _, _, count, _ in spans] == [4, 4, 2]
    assert [draws for *_, draws in spans] == [False, False, True]


def test_the_end_may_be_among_what_must_come() -> None:
    for changes, reason, told in (
        ({"max_tokens": 3}, "length", [7, 8, 9]),
        ({"max_tokens": 9, "stop_ids": frozenset({9})}, "stop", [7, 8, 9]),
        ({"max_tokens": 9, "constraint": Script({7: (8, 9, 10)}, most=4)}, "stop", [7, 8, 9, 10]),
    ):
        world = scheduler()
        world.add(request(1, 3, **{"constraint": Script({7: (8, 9, 10)}), **changes}))  # type: ignore[arg-type]
        *tokens, last = world.complete(result(world.next_step(), _1=7))
        assert [token.token_id for token in tokens if isinstance(token, Token)] == told
        assert last == Ended(sequence=1, reason=reason)  # type: ignore[arg-type]
        assert world.idle


def test_what_must_come_outlives_a_loss() -> None:
    world = scheduler()
    world.add(request(1, 3, max_tokens=9, constraint=Script({7: (8, 9)})))
    tokens_of(world, world.next_step(), _1=7)
    world.lose()
    world.renew(world._capacity)
    step = world.next_step()
    assert issued(step) == [(1, 0, 6, True)]
    assert step is not None
    assert step.token_ids[3:] == (7, 8, 9)


def test_a_constraint_that_cannot_be_followed_ends_its_sequence_alone() -> None:
    world = scheduler()
    world.add(request(1, 3, constraint=Script({}, failure="too complex")))
    world.add(request(2, 3))
    events = world.complete(result(world.next_step(), _1=7, _2=7))
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert failed.sequence == 1
    assert isinstance(failed.error, RequestError)
    assert "too complex" in failed.error.message
    assert issued(world.next_step()) == [(2, 3, 1, True)]


def test_forks_have_constraints_of_their_own() -> None:
    first = request(1, 3, constraint=Script({7: (8,)}))
    second = first.fork(2, 1)
    assert second.constraint is not None
    second.constraint.take(7)
    assert isinstance(first.constraint, Script)
    assert first.constraint.taken == []


def test_no_end_is_drawn_before_the_least_length() -> None:
    world = scheduler()
    world.add(request(1, 3, max_tokens=4, min_tokens=2, stop_ids=frozenset({5, 9})))
    masks = []
    for token in (7, 8, 9):
        step = world.next_step()
        assert step is not None
        sampling = step.spans[0].sampling
        assert sampling is not None
        masks.append(sampling.mask)
        world.complete(result(step, _1=token))
    assert masks == [TokenMask.forbidding([5, 9]), TokenMask.forbidding([5, 9]), None]
    assert world.idle


def test_the_first_token_tells_how_much_was_cached_and_each_how_likely_it_was() -> None:
    world = scheduler()
    told: list[Event] = []
    for number in (1, 2):
        asked = request(1, 10, max_tokens=2)
        sampling = replace(asked.sampling, log_probabilities=1)
        world.add(replace(asked, sequence=number, sampling=sampling, constraint=Script({7: (8,)})))
        while (step := world.next_step()) is not None:
            found = result(step, **({f"_{number}": 7} if step.spans[0].draws else {}))
            likely = tuple(replace(each, log_probabilities=(-0.5, -0.25), likeliest_ids=(3,)) for each in found.sampled)
            told += world.complete(StepResult(epoch=1, step=step.number, sampled=likely))
    tokens = [event for event in told if isinstance(event, Token)]
    assert [token.cached_tokens for token in tokens] == [0, 0, 8, 0]
    assert [(token.log_probabilities, token.likeliest_ids) for token in tokens[:2]] == [
        ((-0.5, -0.25), (3,)),
        ((0.0,), ()),
    ]
