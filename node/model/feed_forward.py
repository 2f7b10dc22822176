"""A layer's feed-forward.

Shapes: T rows, C hidden, F feed-forward, E = 2F.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from layerline.models.feed_forward_spec import CLAMPED_SWIGLU_ALPHA, CLAMPED_SWIGLU_LIMIT, Activation
from node.model.linear.forms import Linear


class FeedForward(Protocol):
    """What a layer does with each row by itself, be it dense or of experts."""

    def __call__(self, x_TC: Tensor) -> Tensor:
        """What it adds to the residual [T, C]."""


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
        return self.down(gated(self.activation, both_TE.narrow(1, 0, width), both_TE.narrow(1, width, width)))


def gated(activation: Activation, gate_TF: Tensor, up_TF: Tensor) -> Tensor:
    """What a gate lets through."""
    if activation == "clamped_swiglu":
        gate_TF = gate_TF.clamp(max=CLAMPED_SWIGLU_LIMIT)
        up_TF = up_TF.clamp(-CLAMPED_SWIGLU_LIMIT, CLAMPED_SWIGLU_LIMIT)
        return torch.sigmoid(gate_TF * CLAMPED_SWIGLU_ALPHA).mul_(gate_TF).mul_(up_TF + 1)
    if activation == "gelu_tanh":
        return functional.gelu(gate_TF, approximate="tanh").mul_(up_TF)
    return functional.silu(gate_TF).mul_(up_TF)
