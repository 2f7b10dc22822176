"""One model in service: a pipeline, the engine that drives it, and the text side, made and taken back as one.

When the pipeline breaks, several things say so within moments: a stream, a hold, a worker's last words. The
most telling of them is what clients hear.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

from coordinator.answers import Stopwatch, answer_pieces, read_prompt
from coordinator.concurrency import ended
from coordinator.engine import Engine
from coordinator.pipeline import OnProgress, pipeline
from coordinator.ring import Ring
from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.scheduler import Scheduler
from coordinator.stats.recorder import Recorder
from coordinator.stats.route import Route
from coordinator.telling import most_telling, patience_s
from coordinator.text.model_text import ModelText, model_text
from layerline.errors import LayerlineError, NoCoordinatorError, OverloadedError, PromptTooLongError
from layerline.models.card import ModelCard
from layerline.plan import PipelinePlan, Plan
from layerline.requests import Finished, GenerateRequest, Piece
from layerline.stats_report import StatsReport

MAX_WAITING = 256
CHUNK_TOKENS = 512


class Serving:
    """A model that answers. `failed` is set once it does not any more."""

    def __init__(self, plan: Plan, card: ModelCard, text: ModelText) -> None:
        (self._pipeline,) = plan.pipelines
        self.plan = plan
        self.card = card
        self._text = text
        self._stop_ids = frozenset(card.tokenizer.eos_ids)
        self._route = Route.of(plan.model, self._pipeline, card.spec.hidden)
        self._said: list[LayerlineError] = []
        self._failing: asyncio.TimerHandle | None = None
        self.failed = asyncio.Event()
        self._engine: Engine | None = None

    def start(self, ring: Ring) -> Engine:
        """The engine that drives this model over `ring`."""
        self._engine = Engine(
            Scheduler(_capacity(self.plan, self._pipeline, self.card)), ring, Recorder(self._route), on_broken=self.hear
        )
        return self._engine

    def hear(self, error: LayerlineError) -> None:
        """Something says that the pipeline is broken."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + patience_s(error)
        if self._failing is None or due_s < self._failing.when():
            if self._failing:
                self._failing.cancel()
            self._failing = loop.call_at(due_s, self._fail)
        self._said.append(error)

    def _fail(self) -> None:
        if self._engine:
            self._engine.fail(most_telling(self._said))
        self.failed.set()

    def close(self) -> None:
        """Ends every answer; nothing happens if a failure has done so."""
        if self._engine:
            self._engine.fail(NoCoordinatorError("The coordinator is ending.", remedy="Ask again once it is back."))
        self.failed.set()

    def stats(self) -> StatsReport:
        """How the work goes."""
        assert self._engine is not None
        return self._engine.stats()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Piece | Finished, None]:
        """The answers to a request, piece by piece; ending the iteration cancels them on every node."""
        assert self._engine is not None
        stopwatch = Stopwatch()
        try:
            prompt = await read_prompt(
                request, self._text, context_tokens=self.plan.context_tokens, stop_ids=self._stop_ids
            )
        except (OverloadedError, PromptTooLongError):
            self._engine.count_refusal()
            raise
        async with self._engine.answer(prompt.sequence, forks=request.n) as answer:
            pieces = answer_pieces(answer, prompt, self._text.tokens, stopwatch, self._route.stages)
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece


@asynccontextmanager
async def serving(
    plan: Plan,
    card: ModelCard,
    addresses: Mapping[str, Sequence[str]],
    *,
    coordinator: str,
    on_progress: OnProgress,
) -> AsyncIterator[Serving]:
    """The model in service for the time of the block; arguments as `pipeline` has them.

    A plan of several pipelines is more than this can do.
    """
    (planned,) = plan.pipelines
    said: list[LayerlineError] = []
    hear = said.append
    async with model_text(card.tokenizer, vocabulary=card.spec.vocabulary) as text:
        reading = asyncio.create_task(text.read())
        try:
            async with pipeline(
                planned, addresses, coordinator=coordinator, on_lost=lambda error: hear(error), on_progress=on_progress
            ) as (bound, ring):
                await reading
                model = Serving(replace(plan, pipelines=(bound,)), card, text)
                hear = model.hear
                running = asyncio.create_task(model.start(ring).run())
                for error in said:
                    model.hear(error)
                try:
                    yield model
                finally:
                    await ended(running)
                    model.close()
        finally:
            await ended(reading)


def _capacity(plan: Plan, pipeline: PipelinePlan, card: ModelCard) -> Capacity:
    return Capacity(
        pages=pipeline.pages,
        page_tokens=pipeline.page_tokens,
        max_rows=pipeline.max_rows,
        chunk_tokens=min(CHUNK_TOKENS, pipeline.max_rows),
        context_tokens=plan.context_tokens,
        max_in_flight=len(pipeline.stages),
        max_waiting=MAX_WAITING,
        reach_tokens=card.spec.reach_tokens,
    )
