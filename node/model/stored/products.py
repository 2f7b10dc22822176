"""Products of few rows with stored rows, on devices that have more for it than unpacking in memory.

Shapes: T rows, I inputs, R rows of the matrix, B bytes of one.
"""

from __future__ import annotations

import logging
import subprocess
from typing import Protocol

import torch
from torch import Tensor

from node.kernels.triton_here import triton_here

MOST_ROWS = 16  # that are few
LEAST_CAPABILITY = (8, 0)  # of a GPU, for products in bfloat16

log = logging.getLogger(__name__)


class FewRows(Protocol):
    """The product of at most MOST_ROWS rows."""

    def __call__(self, storage: str, x_TI: Tensor, stored_RB: Tensor, bias_R: Tensor | None, out_TR: Tensor) -> None:
        """Puts x_TI W_RIᵀ + b_R into `out_TR`."""


def few_rows_on(device: torch.device) -> FewRows | None:
    """What multiplies few rows on `device`, after a trial; None if nothing does."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < LEAST_CAPABILITY or not triton_here():
        return None
    from triton.errors import TritonError  # noqa: PLC0415  # it is there on few machines, and takes long

    from node.model.stored.few_rows import multiply_few  # noqa: PLC0415

    try:
        _try(multiply_few, device)
    except (TritonError, RuntimeError, OSError, subprocess.SubprocessError) as failure:
        log.warning("Triton makes no kernels for %s: stored weights are unpacked in memory. %s", device, failure)
        return None
    return multiply_few


def _try(multiply: FewRows, device: torch.device) -> None:
    """Whatever is missing fails here: a compiler, a driver that is new enough."""
    x_TI, out_TR = torch.zeros(1, 32, device=device), torch.zeros(1, 1, device=device)
    multiply("Q4_0", x_TI, torch.zeros(1, 18, dtype=torch.uint8, device=device), None, out_TR)
