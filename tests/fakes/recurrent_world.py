"""A scheduler of a model with recurrent layers over a pipeline that really keeps its pages and slots."""

from __future__ import annotations

from coordinator.scheduling.events import Ended, Event, Failed, Token
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from layerline.frames import Span
from layerline.step_result import StepResult
from tests.fakes.paged_pipeline import PagedPipeline, answer
from tests.fakes.schedulers import capacity


class World:
    """Everything that is told is checked; `over` are the sequences that have ended or failed."""

    def __init__(self, **changes: int) -> None:
        self.capacity = capacity(**({"slots": 8, "max_in_flight": 1} | changes))
        self.scheduler = Scheduler(self.capacity)
        self.pipeline = PagedPipeline(self.capacity.page_tokens, self.capacity.reach_tokens)
        self.requests: dict[int, SequenceRequest] = {}
        self.answers: dict[int, list[int]] = {}
        self.spans: list[Span] = []
        self.over: set[int] = set()

    def add(self, sequence: int, *token_ids: int, max_tokens: int = 2) -> None:
        self.put(SequenceRequest(sequence=sequence, token_ids=token_ids, max_tokens=max_tokens))

    def put(self, request: SequenceRequest) -> None:
        self.requests[request.sequence], self.answers[request.sequence] = request, []
        self.scheduler.add(request)

    def send(self) -> Step | None:
        step = self.scheduler.next_step()
        if step is not None:
            self.pipeline.send(step)
            self.spans.extend(step.spans)
        self.scheduler.check()
        return step

    def receive(self, *, failed: tuple[int, ...] = ()) -> None:
        result = self.pipeline.receive()
        sampled = tuple(token for token in result.sampled if token.sequence not in failed)
        self.tell(self.scheduler.complete(StepResult(epoch=1, step=result.step, sampled=sampled, failed=failed)))
        self.scheduler.check()

    def tell(self, events: tuple[Event, ...]) -> None:
        for event in events:
            if isinstance(event, Token):
                self.answers[event.sequence].append(event.token_id)
            elif isinstance(event, Ended | Failed):
                self.over.add(event.sequence)

    def run(self) -> list[tuple[int, int, int]]:
        """To the end; (sequence, start, count) of the chunks of prompts on the way."""
        begun = len(self.spans)
        while not self.scheduler.idle:
            if self.send() is None:
                self.receive()
        for sequence in self.over & self.requests.keys():
            whole = answer(self.requests[sequence].token_ids, self.requests[sequence].max_tokens or 100)
            assert self.answers[sequence] == whole[: len(self.answers[sequence])]
        return self.chunks(self.spans[begun:])

    def chunks(self, spans: list[Span]) -> list[tuple[int, int, int]]:
        prompts = {number: len(request.token_ids) for number, request in self.requests.items()}
        return [(span.sequence, span.start, span.count) for span in spans if span.start < prompts[span.sequence]]

    @property
    def slots(self) -> tuple[int, int, int]:
        """Used, cached and free."""
        figures = self.scheduler.figures().slots
        assert figures is not None
        return figures.used, figures.cached, figures.free
