"""Kernels over stored rows, on devices that have more than plain operations for them.

Shapes: T rows, I inputs, R rows of the matrix, B bytes of one.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from node.model.triton_trial import tried

MOST_ROWS = 16  # that are few


class BlockKernels(Protocol):
    """What a device has for stored rows in blocks."""

    def multiply_few(
        self, storage: str, x_TI: Tensor, stored_RB: Tensor, bias_R: Tensor | None, out_TR: Tensor
    ) -> None:
        """Puts x_TI W_RIᵀ + b_R into `out_TR`, of at most MOST_ROWS rows."""

    def unpacked(self, storage: str, stored_RB: Tensor, dtype: torch.dtype) -> Tensor:
        """The numbers [R, I], as `node.model.stored.numbers` has them."""


def block_kernels_on(device: torch.device) -> BlockKernels | None:
    """Those of `device`; None if it has none."""

    def load() -> BlockKernels:
        from node.model.stored import block_kernels  # noqa: PLC0415  # it needs Triton

        return block_kernels

    def trial(kernels: BlockKernels) -> None:
        x_TI, out_TR = torch.zeros(1, 32, device=device), torch.zeros(1, 1, device=device)
        kernels.multiply_few("Q4_0", x_TI, torch.zeros(1, 18, dtype=torch.uint8, device=device), None, out_TR)

    return tried(device, load, trial, "stored weights are unpacked by plain operations")
