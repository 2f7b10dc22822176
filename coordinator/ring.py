"""The coordinator's two ends of the ring: frames to stage 0, results from the last stage."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.balancing.ledger import ExpertLedger
from layerline.frames import Frame
from layerline.link import Receiver, Sender
from layerline.step_result import StepResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Ring:
    """A pipeline ready to compute. `nodes` are the names of its stages' nodes, for messages to people.

    `experts` are the ledgers of its stages.
    """

    epoch: int
    frames: Sender[Frame]
    results: Receiver[StepResult]
    nodes: tuple[str, ...]
    experts: tuple[ExpertLedger, ...] = ()
