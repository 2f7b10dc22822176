"""What the layers of a stage are told of a step beside its rows."""

from __future__ import annotations

from dataclasses import dataclass

from node.model.attention.backend import StepAttention
from node.model.recurrent.slots import StepSlots
from node.model.rope import Turns


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Where the rows' keys, values and states are, and by what heads are turned at their positions."""

    attention: StepAttention
    slots: StepSlots
    turns: Turns
