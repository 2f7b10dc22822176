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
        layers: Sequence[AttentionSpec | RecurrentSpec | None],
        *,
        pages: int,
        page_tokens: int,
        kv_dtype: str,
        sinks: Sequence[NDArray[np.float32] | None] = (),
        page_numbers: Sequence[int] = (),
        slots: int = 0,
    ) -> None:
        """`sinks` are those of each layer's heads; empty: none has any. `page_numbers` says for each layer whose pages
        it reads; empty: its own. A layer that is None keeps nothing."""
        assert page_tokens % TILE == 0, "a page is whole tiles"
        self.page_tokens = page_tokens
        self._sinks = sinks or [None] * len(layers)
        numbers = page_numbers or range(len(layers))
        self.states = (LayerState * len(layers))()
        memory: dict[int, NDArray[np.uint8]] = {}
        for place, (spec, own, number) in enumerate(zip(layers, self._sinks, numbers, strict=True)):
            source = layers[number]
            if isinstance(spec, AttentionSpec) and isinstance(source, AttentionSpec):
                size = TILE * position_bytes(source, kv_dtype) // spec.kv_heads
                if number not in memory:
                    memory[number] = aligned_bytes(pages * self.page_tiles * spec.kv_heads * size)
                self.states[place] = _state(spec, memory[number], size, kv_dtype, own)
            elif spec is not None and not isinstance(spec, AttentionSpec):
                memory[number] = aligned_bytes(slots * slot_bytes(spec))
                self.states[place].states = States(memory[number].ctypes.data, spec.state_numbers)
        self._memory = list(memory.values())

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
