"""A recurrent layer in the place of attention: its two matrices around what has a state.

Shapes: T rows, C hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from node.model.linear.forms import Linear
from node.model.recurrent.recurrence import Recurrence
from node.model.step import Step


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentLayer:
    """The matrix that makes of a row what `recurrence` mixes, and the one that makes of that what is added."""

    made: Linear
    recurrence: Recurrence
    output: Linear

    def __call__(self, x_TC: Tensor, step: Step, layer: int) -> Tensor:
        """What is added to the residual [T, C], as layer number `layer` of the stage."""
        return self.output(step.slots.mixed(layer, self.recurrence, self.made(x_TC)))
