"""The memory of a stage's keys and values, and of its recurrent layers' states.

A page is some tiles; a tile has 16 positions of every head of a layer. What is in a tile is the kernels' business.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from layerline.models.kv_sizes import position_bytes
from layerline.models.recurrent import RecurrentSpec
from layerline.models.slot_sizes import slot_bytes
from layerline.models.spec import AttentionSpec
from node.kernels.engine import aligned_bytes
from node.kernels.structures import KV_STORAGES, TILE, AttentionForm, LayerState, Pages, States


class KvPages:
    """The pages of some layers, of those that are recurrent the slots."""

    def __init__(
        self,
        layers: Sequence[AttentionSpec | RecurrentSpec],
        *,
        pages: int,
        page_tokens: int,
        kv_dtype: str,
        sinks: Sequence[NDArray[np.float32] | None] = (),
        slots: int = 0,
    ) -> None:
        """`sinks` are those of each layer's heads; empty: none has any."""
        assert page_tokens % TILE == 0, "a page is whole tiles"
        self.page_tokens = page_tokens
        self._memory: list[NDArray[np.uint8]] = []
        self._sinks = sinks or [None] * len(layers)
        self.states = (LayerState * len(layers))()
        for number, (spec, own) in enumerate(zip(layers, self._sinks, strict=True)):
            if isinstance(spec, AttentionSpec):
                size = TILE * position_bytes(spec, kv_dtype) // spec.kv_heads
                memory = aligned_bytes(pages * self.page_tiles * spec.kv_heads * size)
                self.states[number] = _state(spec, memory, size, kv_dtype, own)
            else:
                memory = aligned_bytes(slots * slot_bytes(spec))
                self.states[number].states = States(memory.ctypes.data, spec.state_numbers)
            self._memory.append(memory)

    @property
    def page_tiles(self) -> int:
        """Tiles of a page."""
        return self.page_tokens // TILE

    @property
    def nbytes(self) -> int:
        """Bytes of all pages and slots."""
        return sum(memory.nbytes for memory in self._memory)


def _state(
    spec: AttentionSpec,
    memory: NDArray[np.uint8],
    tile_bytes: int,
    kv_dtype: str,
    sinks: NDArray[np.float32] | None,
) -> LayerState:
    pages = Pages(
        tiles=memory.ctypes.data,
        tile_bytes=tile_bytes,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        value_dim=spec.value_dim,
        storage=KV_STORAGES[kv_dtype],
        value_from=spec.turned_dim if spec.latent else 0,
    )
    form = AttentionForm(
        sinks=None if sinks is None else sinks.ctypes.data,
        scale=ctypes.c_float(spec.score_scale),
        soft_cap=spec.soft_cap,
        heads=spec.heads,
        window=spec.window_tokens,
        chunk=spec.chunk_tokens,
    )
    return LayerState(pages=pages, form=form)
