"""The bounds of a model in service."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.engine import STEP_DEADLINE_S
from coordinator.hold_deadlines import HOLD_DEADLINES, HoldDeadlines
from coordinator.model_life import Recovery
from coordinator.node_client import NO_GROWTH_DEADLINE_S
from coordinator.verdict import Patience


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceBounds:
    """How long a model in service waits for what, how often it comes back, and how many requests may wait in it."""

    recovery: Recovery = field(default_factory=Recovery)
    patience: Patience = field(default_factory=Patience)
    step_deadline_s: float = STEP_DEADLINE_S
    no_growth_s: float = NO_GROWTH_DEADLINE_S  # of a node that indexes the model's files
    hold: HoldDeadlines = HOLD_DEADLINES
    max_waiting: int = 256
