"""Several attention passes of the same rows made one, by the log-sum-exp of each.

Shapes: T rows, K key-value heads, G query heads of each, E numbers of a value, N rows of all passes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LEAST_SCORE = -1e30  # less than any, but finite, so that a row without parts has no difference of infinities
SMALLEST = 1e-30
Part = tuple[Tensor, Tensor]
"""(what rows read, float32 log-sum-exp of their scores)."""


def merged(rows: int, parts: Sequence[Part], rows_N: Tensor) -> Part:
    """One float32 part [T, K, G, E] of several, each row weighed by its share of the softmax's denominator.

    Rows of the parts, one after the other, are rows `rows_N` of the step. A row that no part has is zero, and its
    log-sum-exp minus infinity.
    """
    outs, lses = zip(*parts, strict=True)
    lse_NKG = torch.cat(lses)
    rows_NKG = rows_N[:, None, None].expand(lse_NKG.shape)
    most_TKG = lse_NKG.new_full((rows, *lse_NKG.shape[1:]), LEAST_SCORE)
    most_TKG.scatter_reduce_(0, rows_NKG, lse_NKG, "amax")
    weight_NKG = (lse_NKG - most_TKG[rows_N]).exp_()
    total_TKG = torch.zeros_like(most_TKG).index_add_(0, rows_N, weight_NKG)
    out_TKGE = total_TKG.new_zeros(*most_TKG.shape, outs[0].shape[-1])
    out_TKGE.index_add_(0, rows_N, torch.cat(outs) * weight_NKG[..., None])
    return out_TKGE.div_(total_TKG.clamp_min(SMALLEST)[..., None]), most_TKG + total_TKG.log()


def with_sinks(part: Part, sinks_KG: Tensor) -> Tensor:
    """What rows read once each head's sink has taken its share of the softmax: one more part, whose values are zero."""
    out_TKGE, lse_TKG = part
    return out_TKGE * torch.sigmoid(lse_TKG - sinks_KG)[..., None]
