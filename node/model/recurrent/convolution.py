"""A causal convolution over the rows of a sequence, of each channel by itself.

Shapes: B runs, T rows of each, C channels, L taps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Convolution:
    """Its weights, float32; the last tap is that of the row itself."""

    weight_CL: Tensor
    bias_C: Tensor | None

    def __call__(self, x_BTC: Tensor, past_BLC: Tensor) -> Tensor:
        """The rows convolved, float32; `past_BLC` are the L - 1 rows before them, and become those before the next."""
        rows_BTC = torch.cat([past_BLC, x_BTC.float()], dim=1)
        past_BLC.copy_(rows_BTC[:, -past_BLC.shape[1] :])
        rows = x_BTC.shape[1]
        made_BTC = rows_BTC[:, :rows] * self.weight_CL[:, 0]
        for tap in range(1, self.weight_CL.shape[1]):  # not all at once, which would take as many times the memory
            made_BTC.addcmul_(rows_BTC[:, tap : tap + rows], self.weight_CL[:, tap])
        return made_BTC if self.bias_C is None else made_BTC.add_(self.bias_C)
