"""Norms of rows, computed in float32 whatever the dtype of the rows: by the root of their mean square (Zhang and
Sennrich, 2019), or by their deviation from their mean (Ba et al., 2016).

Owns the norm's weight. On a CPU torch makes `rms_norm` out of nine operations, and while a token is decoded each
operation costs more than its arithmetic; there it is put together from five.

Shapes: T rows, C hidden; for the heads of a row, N heads of D numbers in the place of C.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from layerline.models.spec import NormKind


class Norm:
    """x / √(mean(x²) + ε) times a weight [C]; with a weight [N, D] every head of a row by itself.

    If `kind` is "layer", of x - mean(x) in the place of x.
    """

    def __init__(self, weight_C: Tensor, epsilon: float, kind: NormKind = "rms") -> None:
        self._weight_C = weight_C
        self._is_centred = kind == "layer"
        self._epsilon = epsilon
        size = weight_C.shape[-1]
        self._scaled_weight_C = weight_C.float() * math.sqrt(size)
        self._floor = torch.tensor(math.sqrt(size * epsilon))

    def __call__(self, x_TC: Tensor) -> Tensor:
        """The normed rows, in the dtype of x_TC."""
        if self._is_centred:
            weight_C = self._weight_C.float()
            return functional.layer_norm(x_TC.float(), weight_C.shape, weight_C, None, self._epsilon).to(x_TC.dtype)
        if not x_TC.is_cpu:
            if self._weight_C.dim() > 1:
                return functional.rms_norm(x_TC, x_TC.shape[-1:], None, self._epsilon) * self._weight_C
            return functional.rms_norm(x_TC, self._weight_C.shape, self._weight_C, self._epsilon)
        length_T1 = torch.linalg.vector_norm(x_TC, 2, -1, True, dtype=torch.float32)
        normed_TC = (x_TC / torch.hypot(length_T1, self._floor)).mul_(self._scaled_weight_C)
        return normed_TC.to(x_TC.dtype)
