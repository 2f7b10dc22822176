"""A gated convolution over the last few rows: c * conv(b * x).

Source: Liquid AI, LFM2 (2025).

Shapes: B runs, T rows of each, M numbers of a row as the first matrix makes them (b, c and x side by side), O as the
second takes them, N numbers of a state.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.models.recurrent import ShortConvSpec
from node.model.recurrent.convolution import Convolution


@dataclass(frozen=True, kw_only=True, slots=True)
class ShortConv:
    """The `Recurrence` of such a layer."""

    spec: ShortConvSpec
    convolution: Convolution

    def __call__(self, made_BTM: Tensor, state_BN: Tensor) -> Tensor:
        """What the second matrix takes [B, T, O]; `state_BN` becomes what the runs leave."""
        b_BTO, c_BTO, x_BTO = torch.chunk(made_BTM, 3, dim=-1)
        past_BLC = state_BN.view(len(state_BN), -1, self.spec.channels)
        return c_BTO * self.convolution(b_BTO * x_BTO, past_BLC).to(made_BTM.dtype)
