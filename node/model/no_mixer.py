"""What stands in a layer of a rank without heads where others mix tokens: it adds nothing to their sum.

Shapes: T rows, C hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from node.model.step import Step


def _alone(_sum_TC: Tensor) -> None:
    """What `NoMixer.add_up_` does before the ranks are joined."""


@dataclass(frozen=True, slots=True)
class NoMixer:
    """Its part of the sum, which `add_up_` makes the whole one, is zeros."""

    add_up_: Callable[[Tensor], None] = _alone

    def __call__(self, x_TC: Tensor, _step: Step, _index: int) -> Tensor:
        """What the others make of the rows [T, C]."""
        sum_TC = torch.zeros_like(x_TC)
        self.add_up_(sum_TC)
        return sum_TC
