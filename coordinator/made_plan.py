"""What the making of a plan gives, and whoever makes one.

A plan is no use without the model's card and the addresses of its nodes, so the three travel together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from layerline.models.card import ModelCard
from layerline.peer import Peer
from layerline.plan import Plan
from layerline.plan_request import PlanRequest
from layerline.reports import PrepareEvent

Tell = Callable[[PrepareEvent], None]


def untold(_event: PrepareEvent) -> None:
    """A `Tell` for where nobody listens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MadePlan:
    """A plan, the model's card, and by node id the control port of each node, where it answered first."""

    plan: Plan
    card: ModelCard
    nodes: Mapping[str, Peer]


class Planner(Protocol):
    """What makes plans: `PlanMaker`, or a fake."""

    async def plan(self, request: PlanRequest, tell: Tell) -> MadePlan:
        """The first plan."""

    async def plan_again(self, request: PlanRequest, lost: MadePlan, tell: Tell, *, keep: bool) -> MadePlan:
        """The plan that comes after `lost`."""
