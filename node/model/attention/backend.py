"""What an attention backend is.

A backend for another device brings its own pools and its own plan of a step, such as block tables in the device's
memory. What it plans may lie at the same addresses for every step of as many rows, so that the pass through the layers
can be captured once and replayed: the decoder reads nothing of a step but its tensors, and changes the residual in
place.

Shapes: T rows, K key-value heads, G query heads of each, D numbers of a query or key, E numbers of a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from layerline.frames import Span
from layerline.models.spec import AttentionSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerAttention:
    """The attention of one layer besides its matrices.

    A sink is a score that a query head has beside those of the positions: it takes its share of the softmax and has no
    value. Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks (2024); learned as in gpt-oss.
    """

    spec: AttentionSpec
    sinks_KG: Tensor | None = None  # float32; None: no head has one


Kept = tuple[Tensor, Tensor]
"""The keys [T, K, D] and values [T, K, E] of rows."""


class StepAttention(Protocol):
    """Attention of the rows of one step."""

    positions_T: Tensor
    """The position of each row, float32."""

    def attend(self, layer: int, q_TKGD: Tensor, kept: Kept | None) -> Tensor:
        """Keeps the rows' keys and values, and gives what each row reads of its sequence [T, K, G, E].

        `layer` counts the layers of the stage from 0. Queries and keys have been rotated. A layer that reads the pages
        of another keeps nothing.
        """

    def keep(self, layer: int, kept: Kept) -> None:
        """Only keeps keys and values; those that rows bring of earlier stages have numbers behind the layers."""


class PagedAttention(Protocol):
    """Attention of the layers of a stage, with the pages of their keys and values, on one device."""

    @property
    def nbytes(self) -> int:
        """Bytes of the pages."""

    def plan(self, spans: Sequence[Span]) -> StepAttention:
        """The step of these spans, whose pages have been checked."""
