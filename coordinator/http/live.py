"""What the page shows, as it is at this moment: the nodes are asked once a second for all who watch.

Figures of the last minutes are kept, whether anybody watches or not. Nodes are asked only while somebody does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Any, Self

from coordinator.concurrency import ended
from coordinator.coordinator import Coordinator
from coordinator.http.activity import Activity
from coordinator.http.event_stream import event
from layerline.errors import OverloadedError
from layerline.reports import ModelsReport, NodeReport, PlanReport
from layerline.stats_report import StatsReport

PERIOD_S = 1.0
LOOK_DEADLINE_S = 1.5
SAMPLE_PERIOD_S = 2.0
SAMPLES = 150  # five minutes
MAX_WATCHERS = 32

log = logging.getLogger(__name__)

Json = dict[str, Any]


class Live:
    """Used as an `async with` block, in which it looks at `coordinator`."""

    def __init__(self, coordinator: Coordinator, activity: Activity) -> None:
        self._coordinator = coordinator
        self._activity = activity
        self._samples: deque[Json] = deque(maxlen=SAMPLES)
        self._nodes: tuple[Json, ...] = ()
        self._models = ModelsReport(models=())
        self._known: dict[str, NodeReport] = {}  # as they last answered
        self._watchers = 0
        self._watched = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(work()) for work in (self._sample, self._look)]
        return self

    async def __aexit__(self, *failure: object) -> None:
        await ended(*self._tasks)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The figures of the last minutes, and then how all stands, every second; OverloadedError for one too many."""
        if self._watchers >= MAX_WATCHERS:
            raise OverloadedError(f"{MAX_WATCHERS} pages are open already.", retry_after_s=10)
        self._watchers += 1
        self._watched.set()
        try:
            yield event(list(self._samples), "history")
            while not self._activity.draining:
                yield event(self.state(), "state")
                await asyncio.sleep(PERIOD_S)
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._watched.clear()

    def state(self) -> Json:
        """How all stands."""
        coordinator, stats = self._coordinator, self._coordinator.stats()
        facts, loading = coordinator.facts(), coordinator.loading
        plan = coordinator.last_plan
        return {
            "time": time.time(),
            "coordinator": {"name": facts.name, "version": facts.version, "address": facts.address},
            "state": coordinator.state,
            "model": facts.model,
            "context_tokens": coordinator.context_tokens,
            "plan": asdict(PlanReport.of(plan)) if plan else None,
            "loading": {
                "text": loading.text,
                "nodes": [asdict(each) for each in loading.nodes.values()],
            }
            if loading
            else None,
            "nodes": self._nodes,
            "models": asdict(self._models)["models"],
            "stats": asdict(stats) if stats else None,
            "sample": _sample(stats),
        }

    async def _sample(self) -> None:
        while True:
            self._samples.append(_sample(self._coordinator.stats()))
            await asyncio.sleep(SAMPLE_PERIOD_S)

    async def _look(self) -> None:
        while True:
            await self._watched.wait()
            try:
                nodes, self._models = await self._coordinator.look(LOOK_DEADLINE_S)
            except Exception as failure:  # noqa: BLE001  # the page goes on with what it knows
                log.warning("The page cannot look at the nodes: %s", failure)
                await asyncio.sleep(PERIOD_S)
                continue
            self._nodes = tuple(map(self._node, nodes.nodes))
            there = {report.name for report in nodes.nodes}
            self._known = {name: report for name, report in self._known.items() if name in there}
            await asyncio.sleep(PERIOD_S)

    def _node(self, report: NodeReport) -> Json:
        """A node as it is, or was: one that answered before and does not now is lost."""
        lost = report.facts is None and report.name in self._known
        if report.facts is not None:
            self._known[report.name] = report
        facts = self._known[report.name].facts if lost else report.facts
        told = {"name": report.name, "address": report.address, "unusable": report.unusable, "lost": lost}
        if facts is None:
            return {**told, "devices": [], "models": 0}
        return {
            **told,
            "devices": [asdict(device) for device in facts.devices],
            "models": len(facts.models),
        }


def _sample(stats: StatsReport | None) -> Json:
    """The figures that are drawn over time."""
    if stats is None:
        return {"time": time.time(), "stages": []}
    recent = stats.recent
    return {
        "time": time.time(),
        "tokens_per_s": recent.tokens_per_s,
        "streams": stats.sequences.prefilling + stats.sequences.decoding,
        "waiting": stats.sequences.waiting,
        "first_token_s": recent.first_token_time.p50_s,
        "gap_s": recent.gap_time.p50_s,
        "stages": [
            {
                "node": stage.node,
                "busy": stage.busy_share,
                "waiting": stage.waiting_share,
                "bubble": stage.bubble_share,
            }
            for stage in recent.stages
        ],
    }
