"""Random worlds against a pipeline that keeps real pages: answers are right, bounds hold, everything ends."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Ended, Event, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from layerline.errors import OverloadedError, RequestError
from tests.fakes.paged_pipeline import PagedPipeline, answer

STOP_IDS = frozenset({3, 11})
STEPS_TO_END = 5000


class SchedulerWorld(RuleBasedStateMachine):
    """Requests come and go, steps are sent and come back, the pipeline is lost now and then."""

    @initialize(
        pages=st.integers(4, 24),
        page_tokens=st.integers(1, 5),
        max_rows=st.integers(1, 12),
        chunk_tokens=st.integers(1, 12),
        max_in_flight=st.integers(1, 4),
        context_tokens=st.integers(8, 60),
    )
    def start(self, **sizes: Any) -> None:
        self.capacity = Capacity(max_waiting=6, open_ended_tokens=3, **sizes)
        self.scheduler = Scheduler(self.capacity)
        self.pipeline = PagedPipeline(self.capacity.page_tokens)
        self.requests: dict[int, SequenceRequest] = {}
        self.answers: dict[int, list[int]] = defaultdict(list)
        self.ended: dict[int, str] = {}
        self.in_flight: list[Step] = []

    @rule(prompt=st.lists(st.integers(0, 40), min_size=1, max_size=30), max_tokens=st.integers(0, 12))
    def add(self, prompt: list[int], max_tokens: int) -> None:
        number = len(self.requests)
        request = SequenceRequest(sequence=number, token_ids=tuple(prompt), max_tokens=max_tokens, stop_ids=STOP_IDS)
        try:
            self.scheduler.add(request)
        except (RequestError, OverloadedError):
            return
        self.requests[number] = request

    @rule()
    def send(self) -> None:
        step = self.scheduler.next_step()
        if step is not None:
            self._check_step(step)
            self.in_flight.append(step)
            self.pipeline.send(step)

    @precondition(lambda self: self.in_flight)
    @rule()
    def receive(self) -> None:
        self.in_flight.pop(0)
        self._take(self.scheduler.complete(self.pipeline.receive()))

    @precondition(lambda self: self.requests)
    @rule(pick=st.integers(0, 1000), cancelled=st.booleans())
    def end_from_outside(self, pick: int, cancelled: bool) -> None:
        number = list(self.requests)[pick % len(self.requests)]
        self._take(self.scheduler.cancel(number) if cancelled else self.scheduler.finish(number))
        assert number in self.ended

    @rule()
    def lose(self) -> None:
        self.scheduler.lose()
        self.pipeline.lose()
        self.in_flight.clear()

    @invariant()
    def the_pool_is_whole(self) -> None:
        self.scheduler.pool.check()
        assert self.scheduler.steps_in_flight == len(self.in_flight) <= self.capacity.max_in_flight

    @invariant()
    def a_page_in_flight_has_one_owner(self) -> None:
        owners: dict[int, set[int]] = defaultdict(set)
        for step in self.in_flight:
            for span in step.spans:
                for run in span.pages:
                    for page in range(run.first, run.first + run.count):
                        owners[page].add(span.sequence)
        assert all(len(sequences) == 1 for sequences in owners.values())

    @invariant()
    def one_row_that_draws_a_token_is_in_flight(self) -> None:
        drawing = [number for step in self.in_flight for number in step.sampled_sequences()]
        assert len(drawing) == len(set(drawing))

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(STEPS_TO_END):
            if self.scheduler.idle:
                break
            self._run_on()
        assert set(self.ended) == set(self.requests), "not every request ended"
        assert self.scheduler.idle
        assert self.scheduler.pool.free_pages == self.capacity.pages
        for number, request in self.requests.items():
            self._check_answer(request, self.answers[number], self.ended[number])

    def _run_on(self) -> None:
        before = len(self.in_flight)
        self.send()
        if len(self.in_flight) == before:
            assert self.in_flight, "nothing is in flight and nothing can be sent"
            self.receive()

    def _take(self, events: tuple[Event, ...]) -> None:
        for event in events:
            assert event.sequence not in self.ended, "told after the end"
            if isinstance(event, Ended):
                self.ended[event.sequence] = event.reason
            else:
                self._take_token(event)

    def _take_token(self, token: Token) -> None:
        so_far = self.answers[token.sequence]
        assert token.first == (not so_far)
        assert token.position == len(self.requests[token.sequence].token_ids) + len(so_far)
        so_far.append(token.token_id)

    def _check_step(self, step: Step) -> None:
        assert 0 < len(step.token_ids) <= self.capacity.max_rows
        assert len({span.sequence for span in step.spans}) == len(step.spans)
        prompt_rows = sum(span.count for span in step.spans if span.start < self._prompt_tokens(span.sequence))
        assert prompt_rows <= self.capacity.chunk_tokens
        assert not any(span.sequence in self.ended for span in step.spans)

    def _prompt_tokens(self, number: int) -> int:
        return len(self.requests[number].token_ids)

    def _check_answer(self, request: SequenceRequest, tokens: list[int], reason: str) -> None:
        room = self.capacity.context_tokens - len(request.token_ids)
        fitting = self.capacity.pages * self.capacity.page_tokens - len(request.token_ids) + 1
        most = min(request.max_tokens or room, room, fitting)
        whole = answer(request.token_ids, most, STOP_IDS)
        if reason == "length" or (reason == "stop" and tokens and tokens[-1] in STOP_IDS):
            assert tokens == whole
        else:
            assert tokens == whole[: len(tokens)]


TestSchedulerWorld = SchedulerWorld.TestCase
TestSchedulerWorld.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
