"""What a recurrent layer does between its two matrices.

Shapes: B runs of as many rows, T rows of each, M numbers as the first matrix makes them, O as the second takes them, N
numbers of a state.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from layerline.models.recurrent import RecurrentSpec


class Recurrence(Protocol):
    """The part of a recurrent layer that has a state."""

    @property
    def spec(self) -> RecurrentSpec:
        """Its description."""

    def __call__(self, made_BTM: Tensor, state_BN: Tensor) -> Tensor:
        """What the second matrix takes [B, T, O], in the dtype of `made_BTM`.

        `state_BN`, float32, is what the runs go on from, and becomes what they leave. Each run is of neighbouring rows
        of one sequence; it computes in float32.
        """
