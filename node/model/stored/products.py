"""Products of few rows with stored rows, on devices that have more for it than unpacking in memory.

Shapes: T rows, I inputs, R rows of the matrix, B bytes of one.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from node.model.triton_trial import tried

MOST_ROWS = 16  # that are few


class FewRows(Protocol):
    """The product of at most MOST_ROWS rows."""

    def __call__(self, storage: str, x_TI: Tensor, stored_RB: Tensor, bias_R: Tensor | None, out_TR: Tensor) -> None:
        """Puts x_TI W_RIᵀ + b_R into `out_TR`."""


def few_rows_on(device: torch.device) -> FewRows | None:
    """What multiplies few rows on `device`; None if nothing does."""

    def load() -> FewRows:
        from node.model.stored.few_rows import multiply_few  # noqa: PLC0415  # it needs Triton

        few: FewRows = multiply_few
        return few

    def trial(multiply: FewRows) -> None:
        x_TI, out_TR = torch.zeros(1, 32, device=device), torch.zeros(1, 1, device=device)
        multiply("Q4_0", x_TI, torch.zeros(1, 18, dtype=torch.uint8, device=device), None, out_TR)

    return tried(device, load, trial, "stored weights are unpacked in memory")
