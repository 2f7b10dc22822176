"""One model for as long as it is wanted: its answers and the log of their tokens, over one pipeline after the other.

Owns the tokenizer, the chat template, the engine with its scheduler, and the pipeline that there is. Loses a pipeline,
plans again from the nodes there are then, and goes on. `coordinator.model_life` decides when to try and when to end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from coordinator.answering.answers import answered
from coordinator.answering.embedding import embedded
from coordinator.answering.prompt import prompt_ids
from coordinator.answering.scoring import scored
from coordinator.balancing.ledger import ExpertLedger
from coordinator.concurrency import ended
from coordinator.engine import Engine
from coordinator.loading import Loading
from coordinator.made_plan import MadePlan, Planner, Tell
from coordinator.model_life import GiveUp, ModelLife, ModelState
from coordinator.pipeline import OpenPipeline
from coordinator.ring import Ring
from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.scheduler import Scheduler
from coordinator.service_bounds import ServiceBounds
from coordinator.stats.recorder import Recorder
from coordinator.stats.route import Route
from coordinator.text.model_text import ModelText, begun_text
from coordinator.verdict import Verdict
from layerline.answer import AnswerItem
from layerline.embedding import Embedding, EmbeddingFinished, EmbedRequest
from layerline.endings import NOT_FAILURES
from layerline.errors import (
    DeadlineError,
    LayerlineError,
    NoCoordinatorError,
    typed,
    without_trace,
)
from layerline.hold import HoldHello
from layerline.models.card import ModelCard
from layerline.plan import MAX_CONTEXT_TOKENS, Plan
from layerline.plan_request import PlanRequest
from layerline.reports import NodeProgress, Planned, PlanReport, PrepareEvent
from layerline.requests import GenerateRequest
from layerline.scoring import ScoreRequest, ScoringFinished, WindowScores
from layerline.stats_report import StatsReport

WAIT_FOR_IT = "Ask again once it is back."

log = logging.getLogger(__name__)


class ModelService:
    """The model of `wanted`, from `begin` until it is given up or `leave` is called; `state` says how it stands.

    `plan` is the one in effect, or was the last that was. Of `maker` it has its plans; `hello` is what it holds nodes
    with. `loading` tells how far a pipeline is that is being built. `other_names` are those under which nodes have the
    same weights, as far as somebody asked for them.
    """

    def __init__(
        self,
        wanted: PlanRequest,
        maker: Planner,
        *,
        hello: HoldHello,
        bounds: ServiceBounds,
        open_pipeline: OpenPipeline,
        chat_template: str = "",
    ) -> None:
        self.wanted = wanted
        self.plan: Plan | None = None
        self.loading = Loading()
        self.other_names = {wanted.model}
        self._maker = maker
        self._hello = hello
        self._bounds = bounds
        self._open_pipeline = open_pipeline
        self._chat_template = chat_template
        self._life = ModelLife(bounds.recovery, self._wake)
        self._farewell: LayerlineError = NoCoordinatorError("The coordinator is ending.", remedy=WAIT_FOR_IT)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._engine: Engine | None = None
        self._text: ModelText | None = None
        self._stop_ids: frozenset[int] = frozenset()

    @property
    def state(self) -> ModelState:
        """How it stands, in the words of `coordinator.model_life`."""
        return self._life.state

    @property
    def answers(self) -> bool:
        """Whether requests are taken: from when it first served, also while a lost pipeline is being replaced."""
        return self._engine is not None and self._engine.failed is None

    def begin(self, tell: Tell) -> None:
        """Begins to bring it up; `tell` hears of the first time."""

        def told(event: PrepareEvent) -> None:
            self.loading.take(event)
            tell(event)

        self._task = asyncio.create_task(self._live(told))
        self._task.add_done_callback(_fetch)

    async def stands(self) -> None:
        """Returns once it serves; raises the error that ended it."""
        assert self._task is not None
        while self.state != "serving":
            changed = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.wait((changed, self._task), return_when=asyncio.FIRST_COMPLETED)
            finally:
                await ended(changed)
            if self._task.done():
                raise self._farewell if self._task.cancelled() else typed(self._task.exception() or self._farewell)

    async def gone(self) -> None:
        """Returns once everything was given back."""
        assert self._task is not None
        await asyncio.wait((self._task,))

    async def leave(self, why: LayerlineError | None = None) -> None:
        """Ends every answer, by default since the coordinator ends, and gives everything back."""
        assert self._task is not None
        self._farewell = why or self._farewell
        await ended(self._task)

    def stats(self) -> StatsReport | None:
        """How the work goes; None before it first served."""
        if self._engine is None:
            return None
        report = self._engine.stats()
        if self.state == "serving":
            return report
        cause = self._life.cause.message if self._life.cause else "Why is not known yet."
        return replace(report, diagnosis=(f"The pipeline is lost, and another one is being built. {cause}",))

    def generate(self, request: GenerateRequest) -> AsyncGenerator[AnswerItem, None]:
        """The answers to a request, piece by piece; ending the iteration cancels them on every node."""
        engine, text, plan = self._parts
        return answered(request, engine, text, context_tokens=plan.context_tokens, stop_ids=self._stop_ids)

    async def prompt_ids(self, request: GenerateRequest) -> tuple[int, ...]:
        """The token ids of a request's prompt, which may be more than the context holds."""
        return await prompt_ids(request, self._parts[1], context_tokens=MAX_CONTEXT_TOKENS)

    def text_of(self, request: GenerateRequest) -> str:
        """The text of a request's token ids; RequestError for ids that the model does not have."""
        _, text, plan = self._parts
        text.check_ids(request.token_ids or (), context_tokens=plan.context_tokens)
        return text.tokens.text_of(request.token_ids or ())

    def score(self, request: ScoreRequest) -> AsyncGenerator[WindowScores | ScoringFinished, None]:
        """The scores of a text, window by window; ending the iteration cancels what is under way on every node."""
        engine, text, plan = self._parts
        return scored(request, engine, text, context_tokens=plan.context_tokens)

    def stop(self, number: int) -> bool:
        """Ends the answer that has the sequence of that number, with an error; False if there is none."""
        return self._engine is not None and self._engine.stop(number)

    def embed(self, request: EmbedRequest) -> AsyncGenerator[Embedding | EmbeddingFinished, None]:
        """Texts as vectors, in order; ending the iteration cancels what is under way on every node."""
        engine, text, plan = self._parts
        return embedded(request, engine, text, context_tokens=plan.context_tokens)

    @property
    def _parts(self) -> tuple[Engine, ModelText, Plan]:
        """What there is once it has served."""
        assert self._engine is not None
        assert self._text is not None
        assert self.plan is not None
        return self._engine, self._text, self.plan

    async def _live(self, tell: Tell) -> None:
        error: LayerlineError | None = None
        try:
            self._life.plan()
            made = await self._maker.plan(self.wanted, tell)
            async with begun_text(made.card, self._chat_template) as (self._text, reading):
                self._stop_ids = frozenset(made.card.tokenizer.eos_ids)
                await self._serve(made, reading, tell)
        except NOT_FAILURES:
            raise
        except BaseException as failure:
            error = typed(failure)
            if error is not failure:
                log.error("The model in service failed.", exc_info=failure)
            raise error from None
        finally:
            self._leave(error or self._farewell)
            self._life.end()

    async def _serve(self, made: MadePlan, reading: asyncio.Task[None], tell: Tell) -> None:
        """Has one pipeline after the other, until there is none to be had."""
        try:
            async with asyncio.timeout(None) as deadline:
                while True:
                    error = await self._over_one_pipeline(made, reading, deadline, tell)
                    gc.collect()  # circles of what failed and its error have the connections of the lost pipeline
                    made = await self._made_again(made, error)
                    tell = self.loading.take
        except TimeoutError:
            late = DeadlineError("The model was not back in time.", remedy="Look at the logs of the nodes.")
            raise self._life.told(late) from None

    async def _over_one_pipeline(
        self, made: MadePlan, reading: asyncio.Task[None], deadline: asyncio.Timeout, tell: Tell
    ) -> LayerlineError:
        """Builds the pipeline of a plan and answers over it until it breaks; returns why it could not, or broke."""
        verdict = Verdict(self._bounds.patience)
        (planned,) = made.plan.pipelines
        self._life.load()
        tell(Planned(plan=PlanReport.of(made.plan)))

        def progressed(node: str, done_bytes: int, total_bytes: int) -> None:
            tell(NodeProgress(node=node, phase="load", done_bytes=done_bytes, total_bytes=total_bytes))

        try:
            async with self._open_pipeline(
                planned, made.nodes, hello=self._hello, verdict=verdict, on_progress=progressed
            ) as (bound, ring):
                await reading
                self._stand(replace(made.plan, pipelines=(bound,)), made.card, ring.experts)
                deadline.reschedule(None)
                return await self._broken(ring, verdict, deadline)
        except LayerlineError as error:
            return without_trace(error)

    async def _broken(self, ring: Ring, verdict: Verdict, deadline: asyncio.Timeout) -> LayerlineError:
        """Answers over `ring` until it breaks, and returns why it did."""
        assert self._engine is not None
        try:
            await verdict.unless_broken(self._engine.drive(ring))
        except LayerlineError:
            self._engine.lose()
            deadline.reschedule(self._life.lose(asyncio.get_running_loop().time(), worked=self._engine.worked))
        except asyncio.CancelledError:
            self._leave(self._farewell)  # before the pipeline is given back, which takes a while
            raise
        error = await verdict.reached()
        self._engine.end_losers(error)
        return error

    def _stand(self, plan: Plan, card: ModelCard, experts: Sequence[ExpertLedger]) -> None:
        (bound,) = plan.pipelines
        capacity = Capacity.of(bound, plan.context_tokens, card.spec, max_waiting=self._bounds.max_waiting)
        route = Route.of(plan.model, bound, card.spec)
        if self._engine:
            self._engine.renew(capacity, route, experts)
        else:
            scheduler, recorder = Scheduler(capacity), Recorder(route, experts=experts)
            self._engine = Engine(scheduler, recorder, step_deadline_s=self._bounds.step_deadline_s)
        self.plan = plan
        self.loading.end()
        log.info("%s is served in epoch %d.", plan.model, bound.epoch)
        self._life.serve(asyncio.get_running_loop().time())

    async def _made_again(self, lost: MadePlan, error: LayerlineError) -> MadePlan:
        """The plan that comes after `lost`, which `error` ended; raises the error that is to be told if none does."""
        while True:
            decision = self._life.fail(error, asyncio.get_running_loop().time())
            if isinstance(decision, GiveUp):
                raise decision.error
            what = "It could not be built again." if decision.attempt > 1 else "The pipeline is lost."
            log.warning("%s %s Attempt %d begins in %.0f s.", what, error, decision.attempt, decision.pause_s)
            await asyncio.sleep(decision.pause_s)
            self._life.plan()
            try:
                return await self._maker.plan_again(self.wanted, lost, self.loading.take, keep=decision.attempt == 1)
            except LayerlineError as failure:
                error = without_trace(failure)

    def _leave(self, error: LayerlineError) -> None:
        if self.state in ("leaving", "absent"):
            return
        if self._engine:
            self._engine.fail(error)
        self._life.leave(error.message)

    def _wake(self) -> None:
        """Wakes who waits for a change of state."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _fetch(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # whoever waits for it has it
