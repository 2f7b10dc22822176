"""Random worlds against a pipeline that keeps real pages: answers are right, bounds hold, everything ends."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.events import Ended, Event, Failed, Scored, Token
from coordinator.scheduling.pages import count_pages, pages_between
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from layerline.errors import OverloadedError, RequestError
from layerline.frames import Span
from tests.fakes.paged_pipeline import PagedPipeline, answer, scores

STOP_IDS = frozenset({3, 11})
STEM = tuple(range(20, 40))  # prompts begin with a part of it, so that many share a prefix
STEPS_TO_END = 5000
SLOTS = st.sampled_from([0, 2, 3, 4, 6, 20])
SIZES = st.fixed_dictionaries(
    {
        "pages": st.integers(4, 24),
        "page_tokens": st.integers(1, 5),
        "max_rows": st.integers(1, 12),
        "chunk_tokens": st.integers(1, 12),
        "max_in_flight": st.integers(1, 4),
        "context_tokens": st.integers(8, 60),
    }
)


class SchedulerWorld(RuleBasedStateMachine):
    """Requests come and go, steps are sent and come back, the pipeline is lost now and then."""

    @initialize(reach_tokens=st.sampled_from([0, 2, 3, 8, 20]), slots=SLOTS, sizes=SIZES)
    def start(self, reach_tokens: int, slots: int, sizes: dict[str, int]) -> None:
        sizes = {**sizes, "reach_tokens": reach_tokens, "slots": slots}
        self.capacity = Capacity(max_waiting=6, open_ended_tokens=3, **sizes)
        self.scheduler = Scheduler(self.capacity)
        self.pipeline = PagedPipeline(self.capacity.page_tokens, self.capacity.reach_tokens)
        self.requests: dict[int, SequenceRequest] = {}
        self.added_to: dict[int, Capacity] = {}
        self.answers: dict[int, list[int]] = defaultdict(list)
        self.scores: dict[int, list[float]] = defaultdict(list)
        self.ended: dict[int, str] = {}
        self.in_flight: list[Step] = []

    @rule(
        stem=st.integers(0, len(STEM)),
        own=st.lists(st.integers(0, 3), min_size=1, max_size=12),
        max_tokens=st.integers(0, 12),
        answers=st.integers(1, 3),
    )
    def add(self, stem: int, own: list[int], max_tokens: int, answers: int) -> None:
        prompt = (*STEM[:stem], *own)
        first = SequenceRequest(sequence=0, token_ids=prompt, max_tokens=max_tokens, stop_ids=STOP_IDS)
        for index in range(answers):
            self._add(first.fork(len(self.requests), index))

    @precondition(lambda self: self.ended)
    @rule(pick=st.integers(0, 1000), own=st.lists(st.integers(0, 3), min_size=1, max_size=5))
    def take_the_next_turn(self, pick: int, own: list[int]) -> None:
        number = list(self.ended)[pick % len(self.ended)]
        prompt = (*self.requests[number].token_ids, *self.answers[number], *own)
        self._add(SequenceRequest(sequence=len(self.requests), token_ids=prompt, max_tokens=4, stop_ids=STOP_IDS))

    @rule(stem=st.integers(0, len(STEM)), own=st.lists(st.integers(0, 3), min_size=2, max_size=12))
    def score(self, stem: int, own: list[int]) -> None:
        self._add(SequenceRequest.scoring(len(self.requests), (*STEM[:stem], *own)))

    def _add(self, request: SequenceRequest) -> None:
        try:
            self.scheduler.add(request)
        except (RequestError, OverloadedError):
            return
        self.requests[request.sequence] = request
        self.added_to[request.sequence] = self.capacity

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

    @rule(sizes=SIZES, slots=SLOTS)
    def lose_and_go_on_elsewhere(self, sizes: dict[str, int], slots: int) -> None:
        self.lose()
        slots = max(2, slots) if self.capacity.slots else 0
        self.capacity = replace(self.capacity, slots=slots, **sizes)
        self.pipeline = PagedPipeline(self.capacity.page_tokens, self.capacity.reach_tokens)
        self._take(self.scheduler.renew(self.capacity))

    @invariant()
    def the_books_are_right(self) -> None:
        self.scheduler.check()
        assert self.scheduler.steps_in_flight == len(self.in_flight) <= self.capacity.max_in_flight + 1

    @precondition(lambda self: not self.capacity.reach_tokens and not self.capacity.slots)
    @invariant()
    def who_is_in_flight_owns_its_pages(self) -> None:
        readers: dict[int, set[int]] = defaultdict(set)
        for step in self.in_flight:
            for span in step.spans:
                for page in pages_between(span.pages, 0, count_pages(span.pages)):
                    readers[page].add(span.sequence)
        assert all(len(sequences) <= self.scheduler.pool.owners(page) for page, sequences in readers.items())

    @invariant()
    def one_row_that_draws_a_token_is_in_flight(self) -> None:
        drawing = [number for step in self.in_flight for number, _ in step.sampled_positions()]
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
        assert self.scheduler.pool.used_pages == 0
        assert self.scheduler.slots is None or self.scheduler.slots.used == 0
        self.scheduler.lose()
        assert self.scheduler.slots is None or self.scheduler.slots.free == self.capacity.slots
        assert self.scheduler.pool.free_pages == self.capacity.pages
        for number, request in self.requests.items():
            if request.is_read:
                self._check_scores(request, self.scores[number], self.ended[number])
                continue
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
            elif isinstance(event, Failed):
                self.ended[event.sequence] = "failed"
            elif isinstance(event, Scored):
                assert event.position == len(self.scores[event.sequence]) + 1
                self.scores[event.sequence] += event.log_probabilities
            elif isinstance(event, Token):
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
        for span in step.spans:
            self._check_written(span)
            assert bool(span.states) == (self.capacity.slots > 0)

    def _check_written(self, span: Span) -> None:
        """Nobody else reads or is offered a page that is written to."""
        size, pool = self.capacity.page_tokens, self.scheduler.pool
        first, end = span.start // size, -(-(span.start + span.count) // size)
        written = pages_between(span.pages, first - span.skipped_pages, end - span.skipped_pages)
        assert written
        assert all(pool.owners(page) == 1 and not pool.is_kept(page) for page in written)

    def _prompt_tokens(self, number: int) -> int:
        return len(self.requests[number].token_ids)

    def _check_answer(self, request: SequenceRequest, tokens: list[int], reason: str) -> None:
        capacity = self.added_to[request.sequence]
        room = capacity.context_tokens - len(request.token_ids)
        fitting = capacity.pages * capacity.page_tokens - len(request.token_ids) + 1
        whole_window = capacity.pages >= capacity.sequence_pages
        most = min(request.max_tokens or room, room, room if whole_window else fitting)
        whole = answer(request.token_ids, most, STOP_IDS)
        if reason == "length" and request.max_tokens == 0:
            assert tokens == whole[: len(tokens)] != [], "another pipeline may have had less room"
        elif reason == "length" or (reason == "stop" and tokens and tokens[-1] in STOP_IDS):
            assert tokens == whole
        else:
            assert tokens == whole[: len(tokens)]

    def _check_scores(self, request: SequenceRequest, told: list[float], reason: str) -> None:
        whole = scores((*request.token_ids, request.next_ids[-1]))
        assert told == (whole if reason == "length" else whole[: len(told)])
        assert not self.answers[request.sequence], "a token was drawn"


TestSchedulerWorld = SchedulerWorld.TestCase
TestSchedulerWorld.settings = settings(max_examples=3 * settings().max_examples)
