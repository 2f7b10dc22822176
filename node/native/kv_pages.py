"""The memory of a stage's keys and values, and where the positions of a step's sequences lie in it.

A page is some tiles; a tile has 16 positions of every head of a layer. What is in a tile is the kernels' business.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from layerline.frames import Span
from layerline.models.sizes import position_bytes
from layerline.models.spec import AttentionSpec
from node.kernels.engine import aligned_bytes
from node.kernels.structures import KV_STORAGES, TILE, AttentionForm, LayerState, Pages, StepSpan


class KvPages:
    """The pages of some layers."""

    def __init__(self, layers: Sequence[AttentionSpec], *, pages: int, page_tokens: int, kv_dtype: str) -> None:
        assert page_tokens % TILE == 0, "a page is whole tiles"
        self._page_tiles = page_tokens // TILE
        self._page_tokens = page_tokens
        sizes = [TILE * position_bytes(spec, kv_dtype) // spec.kv_heads for spec in layers]
        self._memory = [
            aligned_bytes(pages * self._page_tiles * spec.kv_heads * size)
            for spec, size in zip(layers, sizes, strict=True)
        ]
        self.states = (LayerState * len(layers))(
            *(
                _state(spec, memory, size, kv_dtype)
                for spec, memory, size in zip(layers, self._memory, sizes, strict=True)
            )
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all pages."""
        return sum(memory.nbytes for memory in self._memory)

    def spans(self, spans: Sequence[Span]) -> StepSpans:
        """Where the rows of these spans, whose pages have been checked, lie and read."""
        return StepSpans(spans, self._page_tokens, self._page_tiles)


class StepSpans:
    """The spans of one step for the kernels; keeps the tables that they point to."""

    def __init__(self, spans: Sequence[Span], page_tokens: int, page_tiles: int) -> None:
        firsts = [0, *accumulate(span.count for span in spans)]
        self._tables = [_tiles(span, page_tiles) for span in spans]
        self.count = len(spans)
        self.structures = (StepSpan * len(spans))(
            *(
                StepSpan(
                    first_row=first,
                    rows=span.count,
                    first_position=span.skipped_pages * page_tokens,
                    start=span.start,
                    tiles=table.ctypes.data,
                )
                for first, span, table in zip(firsts, spans, self._tables, strict=False)
            )
        )
        self.positions_T = np.concatenate([np.arange(span.start, span.start + span.count) for span in spans])


def _tiles(span: Span, page_tiles: int) -> NDArray[np.int32]:
    runs = [np.arange(run.first * page_tiles, (run.first + run.count) * page_tiles) for run in span.pages]
    return np.concatenate(runs).astype(np.int32)


def _state(spec: AttentionSpec, memory: NDArray[np.uint8], tile_bytes: int, kv_dtype: str) -> LayerState:
    pages = Pages(
        tiles=memory.ctypes.data,
        tile_bytes=tile_bytes,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        value_dim=spec.value_dim,
        storage=KV_STORAGES[kv_dtype],
    )
    form = AttentionForm(
        sinks=None,
        scale=ctypes.c_float(spec.score_scale),
        soft_cap=spec.soft_cap,
        heads=spec.heads,
        window=spec.window_tokens,
    )
    return LayerState(pages=pages, form=form)
