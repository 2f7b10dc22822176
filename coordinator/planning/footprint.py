"""The memory that a stage takes, as a function of its layers: weights, KV pages and workspace.

Owns the choice of page size and of the rows of a step. Knows no nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

from layerline.models.shares import RankShare
from layerline.models.sizes import (
    embedding_parameters,
    kv_bytes_per_token,
    layer_parameters,
    most_sequence_pages,
    rank_workspace_bytes,
    stage_weights_bytes,
    workspace_bytes,
)
from layerline.models.spec import ModelSpec
from layerline.plan import DTYPE_BYTES, PlanRequest

PAGE_TOKENS = 16
MOST_ROWS = 512
MOST_FRAME_BYTES = 4 << 20  # of the activations of one step; the limit of a message is above


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """Whether a stage has the embedding (first) and the output matrix (last)."""

    first: bool
    last: bool


FIRST = Ends(first=True, last=False)
MIDDLE = Ends(first=False, last=False)
LAST = Ends(first=False, last=True)
WHOLE = Ends(first=True, last=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """The memory of the stages of one model, held in `dtype` and `kv_dtype`, with the same number of KV pages each.

    With a `share` it is that of one rank of stages that are split over several devices.
    """

    spec: ModelSpec
    dtype: str
    kv_dtype: str
    pages: int
    share: RankShare | None = None

    @classmethod
    def asked(cls, spec: ModelSpec, request: PlanRequest, context_tokens: int) -> Footprint:
        """That of the model as `request` wants it held, with pages for one sequence of `context_tokens`."""
        max_rows = rows_of_a_step(spec, request.dtype)
        pages = most_sequence_pages(spec.reach_tokens, context_tokens, max_rows, PAGE_TOKENS)
        return cls(spec=spec, dtype=request.dtype, kv_dtype=request.held_kv_dtype, pages=pages)

    def of_rank(self, share: RankShare) -> Footprint:
        """That of one rank."""
        return replace(self, share=share)

    @property
    def _part(self) -> ModelSpec:
        """What is held: the model, or the rank's part of it, which is again a model."""
        return self.share.part_of(self.spec) if self.share else self.spec

    @property
    def max_rows(self) -> int:
        """The most rows of a step."""
        return rows_of_a_step(self.spec, self.dtype)

    @property
    def layer_bytes(self) -> int:
        """Bytes of the weights of one layer."""
        return layer_parameters(self._part) * DTYPE_BYTES[self.dtype]

    @property
    def output_bytes(self) -> int:
        """Bytes of the output matrix, which every token is multiplied with; the embedding is only looked up in."""
        return embedding_parameters(self._part) * DTYPE_BYTES[self.dtype]

    @property
    def least_bytes(self) -> int:
        """What a node must offer to be of any use: one layer between two others."""
        return self.layer_bytes + self.kv_bytes(1) + self.workspace_bytes(MIDDLE)

    def weights_bytes(self, layers: int, ends: Ends) -> int:
        """Bytes of the weights of `layers` layers and of the matrices at the ends."""
        first_layer = 0 if ends.first else self.spec.layers - layers if ends.last else 1
        return stage_weights_bytes(self._part, first_layer, first_layer + layers - 1, self.dtype)

    def page_bytes(self, layers: int) -> int:
        """Bytes of one KV page."""
        return PAGE_TOKENS * kv_bytes_per_token(self._part, layers, self.kv_dtype)

    def kv_bytes(self, layers: int) -> int:
        """Bytes of all KV pages."""
        return self.pages * self.page_bytes(layers)

    def workspace_bytes(self, ends: Ends) -> int:
        """Bytes that computing a step takes beside."""
        if self.share:
            return rank_workspace_bytes(self.spec, self.share, self.max_rows, self.dtype, has_output=ends.last)
        return workspace_bytes(self.spec, self.max_rows, self.dtype, has_output=ends.last)

    def needed_bytes(self, layers: int, ends: Ends) -> int:
        """All that a stage of `layers` layers takes."""
        return self.weights_bytes(layers, ends) + self.kv_bytes(layers) + self.workspace_bytes(ends)

    def most_layers(self, budget_bytes: int, ends: Ends) -> int:
        """The most layers that fit into `budget_bytes`; a stage at one end leaves a layer for the rest."""
        limit = self.spec.layers - (2 - ends.first - ends.last)
        return bisect_right(range(1, limit + 1), budget_bytes, key=lambda layers: self.needed_bytes(layers, ends))

    def most_pages(self, budget_bytes: int, layers: int, ends: Ends) -> int:
        """The most KV pages that `budget_bytes` have room for beside the rest of a stage of `layers` layers."""
        rest_bytes = self.weights_bytes(layers, ends) + self.workspace_bytes(ends)
        return max(0, budget_bytes - rest_bytes) // self.page_bytes(layers)


def rows_of_a_step(spec: ModelSpec, dtype: str) -> int:
    """The most rows of a step: the largest power of two whose activations fit a frame."""
    rows = MOST_FRAME_BYTES // (spec.hidden * DTYPE_BYTES[dtype])
    return min(MOST_ROWS, 1 << max(0, rows.bit_length() - 1))


def ends_of(spec: ModelSpec, first_layer: int, last_layer: int) -> Ends:
    """The ends of the model that layers `first_layer` to `last_layer` have."""
    return Ends(first=first_layer == 0, last=last_layer == spec.layers - 1)
