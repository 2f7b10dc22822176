"""Pipelines of real tiny stages in this process, one after the other, as a model service plans and opens them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from coordinator.made_plan import MadePlan, Tell
from coordinator.pipeline import OnProgress
from coordinator.ring import Ring
from coordinator.verdict import Verdict
from layerline.errors import LayerlineError, StageFailedError
from layerline.frames import Frame
from layerline.hold import HoldHello
from layerline.peer import Peer
from layerline.plan import PipelinePlan, Plan, StagePlan
from layerline.plan_request import PlanRequest
from layerline.step_result import StepResult
from node.worker.stage_compute import RankCompute
from tests.fakes.memory_ring import memory_ring
from tests.fakes.tiny_models import StoredModel


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A pipeline to come: its stages, and the frame, counted from 1, at which one of them is lost, if any is.

    A pipeline that `fails` is planned but never stands.
    """

    stages: int = 2
    lost_stage: int = 0
    lost_at: int = 0
    context_tokens: int = 128
    pages: int = 64
    fails: LayerlineError | None = None


class LosableStage:
    """A stage that computes until it is lost."""

    def __init__(self, stage: RankCompute, node: str, lost_at: int) -> None:
        self._stage = stage
        self._node = node
        self._left = lost_at

    def run(self, frame: Frame) -> Frame | StepResult:
        """As `node.stage.Stage` has it."""
        self._left -= 1
        if self._left == 0:
            raise StageFailedError(f"The worker of node {self._node} was killed.", node=self._node)
        return self._stage.run(frame)


class MemoryPipelines:
    """The pipelines of `planned` in order, the last of them for ever; plans them too. `opened` counts them."""

    def __init__(self, model: StoredModel, *planned: Planned, max_rows: int = 16) -> None:
        self._model = model
        self._planned = planned
        self._max_rows = max_rows
        self._plans = 0
        self.opened = 0

    async def plan(self, request: PlanRequest, tell: Tell) -> MadePlan:
        """The next plan."""
        self._plans += 1
        return MadePlan(plan=self._plan(self._next), card=self._model.card, nodes={})

    async def plan_again(self, request: PlanRequest, lost: MadePlan, tell: Tell, *, keep: bool) -> MadePlan:
        """The next plan."""
        return await self.plan(request, tell)

    @asynccontextmanager
    async def open(
        self,
        planned: PipelinePlan,
        nodes: Mapping[str, Peer],
        *,
        hello: HoldHello,
        verdict: Verdict,
        on_progress: OnProgress,
    ) -> AsyncIterator[tuple[PipelinePlan, Ring]]:
        """The pipeline of the plan that was made last."""
        asked = self._next
        if asked.fails:
            raise asked.fails
        self.opened += 1
        chain = self._model.chain(asked.stages, pages=asked.pages, max_rows=self._max_rows)
        stages = [
            LosableStage(stage, f"n{index}", asked.lost_at if index == asked.lost_stage else 0)
            for index, stage in enumerate(chain.stages)
        ]
        async with memory_ring(stages, epoch=self.opened) as ring:
            yield replace(planned, epoch=self.opened), ring

    @property
    def _next(self) -> Planned:
        return self._planned[min(self._plans, len(self._planned)) - 1]

    def _plan(self, asked: Planned) -> Plan:
        layers = self._model.card.spec.layers
        edges = [layers * index // asked.stages for index in range(asked.stages + 1)]
        stages = tuple(
            StagePlan(
                node_id=f"id-n{index}",
                node=f"n{index}",
                spec=self._model.spec(edges[index], edges[index + 1] - 1, pages=asked.pages, max_rows=self._max_rows),
                weights_bytes=1,
                kv_bytes=1,
                workspace_bytes=1,
                budget_bytes=9,
            )
            for index in range(asked.stages)
        )
        return Plan(
            model="tiny",
            digest=self._model.card.digest,
            weights="float32",
            dtype="float32",
            kv_dtype="float32",
            layers=layers,
            context_tokens=asked.context_tokens,
            pipelines=(PipelinePlan(stages=stages),),
        )
