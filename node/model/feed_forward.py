"""A layer's feed-forward.

Shapes: T rows, C hidden, F feed-forward, E = 2F.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from layerline.models.spec import Activation
from node.model.linear.forms import Linear


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedFeedForward:
    """Wdown · (activation(Wgate · x) * Wup · x), called SwiGLU or GeGLU (Shazeer, 2020).

    `gate_up` has the rows of gate and up.
    """

    activation: Activation
    gate_up: Linear
    down: Linear

    def __call__(self, x_TC: Tensor) -> Tensor:
        """What it adds to the residual [T, C]."""
        both_TE = self.gate_up(x_TC)
        width = both_TE.shape[1] // 2
        gate_TF, up_TF = both_TE.narrow(1, 0, width), both_TE.narrow(1, width, width)
        return self.down(_activated(self.activation, gate_TF).mul_(up_TF))


def _activated(activation: Activation, gate_TF: Tensor) -> Tensor:
    if activation == "gelu_tanh":
        return functional.gelu(gate_TF, approximate="tanh")
    return functional.silu(gate_TF)
