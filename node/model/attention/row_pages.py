"""The pages of a step that has one row of each of its sequences, as a kernel reads them: tables on the device.

Shapes: T rows, P pages of a row at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from layerline.frames import Span
from layerline.models.spec import AttentionSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class RowPages:
    """Of each row the pages that are still read, and the positions from the first slot of these to the row's own."""

    page_tokens: int
    pages_TP: Tensor  # int32; what is behind a row's last page says nothing
    first_positions_T: Tensor  # int32
    end_positions_T: Tensor  # int32, that after the row's own
    positions_T: Tensor  # float32
    slots_T: Tensor  # int64, of the row's own position

    @classmethod
    def of(cls, spans: Sequence[Span], page_tokens: int, device: torch.device) -> RowPages:
        """Those of spans of one row each, whose pages have been checked."""
        assert all(span.count == 1 for span in spans), "spans of several rows"
        listed = [[page for run in span.pages for page in range(run.first, run.first + run.count)] for span in spans]
        pages_TP = np.zeros((len(spans), max(map(len, listed))), np.int32)
        for row, pages in enumerate(listed):
            pages_TP[row, : len(pages)] = pages
        starts_T = np.array([span.start for span in spans], np.int32)
        firsts_T = np.array([span.skipped_pages * page_tokens for span in spans], np.int32)
        places_T = starts_T - firsts_T
        slots_T = pages_TP[np.arange(len(spans)), places_T // page_tokens].astype(np.int64) * page_tokens
        return cls(
            page_tokens=page_tokens,
            pages_TP=torch.from_numpy(pages_TP).to(device),
            first_positions_T=torch.from_numpy(firsts_T).to(device),
            end_positions_T=torch.from_numpy(starts_T + 1).to(device),
            positions_T=torch.from_numpy(starts_T.astype(np.float32)).to(device),
            slots_T=torch.from_numpy(slots_T + places_T % page_tokens).to(device),
        )

    def with_room_for(self, most_pages: int) -> RowPages:
        """The same in tensors of its own, for as many pages of a row: `fill_` puts others there."""
        rows, pages = self.pages_TP.shape
        pages_TP = self.pages_TP.new_zeros(rows, most_pages)
        pages_TP[:, :pages] = self.pages_TP
        return RowPages(
            page_tokens=self.page_tokens,
            pages_TP=pages_TP,
            first_positions_T=self.first_positions_T.clone(),
            end_positions_T=self.end_positions_T.clone(),
            positions_T=self.positions_T.clone(),
            slots_T=self.slots_T.clone(),
        )

    def fill_(self, other: RowPages) -> None:
        """Becomes what `other` is, of as many rows, where it is."""
        self.pages_TP[:, : other.pages_TP.shape[1]].copy_(other.pages_TP)
        self.first_positions_T.copy_(other.first_positions_T)
        self.end_positions_T.copy_(other.end_positions_T)
        self.positions_T.copy_(other.positions_T)
        self.slots_T.copy_(other.slots_T)


class RowAttention(Protocol):
    """What attends one row of each sequence at once."""

    def __call__(
        self,
        spec: AttentionSpec,
        q_TKGD: Tensor,
        k_KSD: Tensor,
        v_KSE: Tensor,
        sinks_KG: Tensor | None,
        pages: RowPages,
    ) -> Tensor:
        """What each row reads of its sequence [T, K, G, E], over all slots of a layer's keys and values."""
