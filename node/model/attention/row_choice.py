"""Whether a device has attention of one row of each sequence at once."""

from __future__ import annotations

import torch

from layerline.frames import PageRun, Span
from layerline.models.spec import AttentionSpec
from node.model.attention.row_pages import RowAttention, RowPages
from node.model.triton_trial import tried

_TRIED = AttentionSpec(heads=1, kv_heads=1, head_dim=16, value_dim=16, rope=None)


def row_attention_on(device: torch.device) -> RowAttention | None:
    """What attends one row of each sequence on `device`; None if nothing does."""

    def load() -> RowAttention:
        from node.model.attention.row_kernel import attend_rows  # noqa: PLC0415  # it needs Triton

        rows: RowAttention = attend_rows
        return rows

    def trial(attend: RowAttention) -> None:
        span = Span(sequence=1, start=0, count=1, pages=(PageRun(first=0, count=1),), draws=0)
        k_KSD = torch.zeros(1, 16, 16, device=device)
        attend(_TRIED, torch.zeros(1, 1, 1, 16, device=device), k_KSD, k_KSD, None, RowPages.of([span], 16, device))

    return tried(device, load, trial, "rows of answers attend one after the other")
