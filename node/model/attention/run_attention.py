"""Attention by passes over runs of neighbouring slots, on any device: the pages are read where they lie.

Shapes: T rows, K key-value heads, G query heads of each, D numbers of a query or key, E numbers of a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.frames import Span
from layerline.models.spec import AttentionSpec
from node.model.attention.backend import Kept, LayerAttention, StepAttention
from node.model.attention.merge import Part, merged, with_sinks
from node.model.attention.passes import AttentionPass, attention_pass, reversed_pass
from node.model.attention.pieces import Group, Piece, Reach, StepPieces
from node.model.attention.pools import LayerPool, layer_pool, most_slots
from node.model.attention.row_pages import RowAttention, RowPages


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layer:
    spec: AttentionSpec
    pool: LayerPool
    attend_pass: AttentionPass
    sinks_KG: Tensor | None

    @property
    def reach(self) -> Reach:
        return Reach(self.spec.window_tokens, self.spec.chunk_tokens)


class RunAttention:
    """The `PagedAttention` that works on any device.

    Steps of one row of each sequence are those of `rows`, where the device has it and the pages are in floating point.
    """

    def __init__(
        self,
        layers: Mapping[int, _Layer],
        page_tokens: int,
        most_slots: int,
        device: torch.device,
        rows: RowAttention | None,
        most_pages: int,
    ) -> None:
        self.most_pages = most_pages
        self._layers = layers
        self._rows = rows if all(layer.pool.floats for layer in layers.values()) else None
        self._reaches = {layer.reach for layer in layers.values()}
        self._page_tokens = page_tokens
        self._most_slots = most_slots
        self._device = device

    @classmethod
    def allocate(
        cls,
        layers: Sequence[LayerAttention | None],
        *,
        pages: int,
        page_tokens: int,
        kv_dtype: str,
        dtype: torch.dtype,
        device: torch.device,
        rows: RowAttention | None = None,
        page_numbers: Sequence[int] = (),
    ) -> RunAttention:
        """That of these layers, with pages that are not filled; `dtype` is that of the computation.

        A layer without attention is None. `page_numbers` says for each layer whose pages it reads; empty: its own.
        """
        numbers = page_numbers or range(len(layers))
        pools: dict[int, LayerPool] = {}
        for number in set(numbers):
            if (own := layers[number]) is not None:
                pools[number] = layer_pool(own.spec, pages * page_tokens, kv_dtype, dtype=dtype, device=device)
        made = {
            number: _Layer(
                spec=layer.spec,
                pool=pools[numbers[number]],
                attend_pass=attention_pass(layer.spec, device),
                sinks_KG=layer.sinks_KG,
            )
            for number, layer in enumerate(layers)
            if layer is not None
        }
        return cls(made, page_tokens, most_slots(kv_dtype, dtype), device, rows, pages)

    @property
    def nbytes(self) -> int:
        """Bytes of the pages of all layers."""
        return sum(pool.nbytes for pool in {id(layer.pool): layer.pool for layer in self._layers.values()}.values())

    def attends_rows(self, spans: Sequence[Span]) -> bool:
        """Whether a step of these spans is one of one row of each sequence, which are attended at once."""
        return self._rows is not None and all(span.count == 1 for span in spans)

    def row_pages(self, spans: Sequence[Span]) -> RowPages:
        """The pages of such a step."""
        return RowPages.of(spans, self._page_tokens, self._device)

    def row_step(self, pages: RowPages) -> RowStep:
        """Such a step, over what is in `pages` as the layers are passed."""
        assert self._rows is not None, "rows are not attended at once here"
        return RowStep(self._layers, self._rows, pages)

    def plan(self, spans: Sequence[Span]) -> StepAttention:
        """Slots and pieces of these spans, or their pages, the same for every layer."""
        if self.attends_rows(spans):
            return self.row_step(self.row_pages(spans))
        pieces = StepPieces.of(
            spans, self._page_tokens, reaches=self._reaches, most_slots=self._most_slots, device=self._device
        )
        return RunStep(self._layers, pieces)


class RowStep:
    """The `StepAttention` of one row of each sequence."""

    def __init__(self, layers: Mapping[int, _Layer], rows: RowAttention, pages: RowPages) -> None:
        self.positions_T = pages.positions_T
        self._layers = layers
        self._rows = rows
        self._pages = pages

    def keep(self, layer: int, kept: Kept) -> None:
        """Only keeps keys and values."""
        self._layers[layer].pool.write(self._pages.slots_T, *kept)

    def attend(self, layer: int, q_TKGD: Tensor, kept: Kept | None) -> Tensor:
        """Keeps the rows' keys and values, and gives what each row reads of its sequence [T, K, G, E]."""
        own = self._layers[layer]
        if kept is not None:
            self.keep(layer, kept)
        floats = own.pool.floats
        assert floats is not None, "rows are attended in floating point"
        return self._rows(own.spec, q_TKGD, *floats, own.sinks_KG, self._pages)


class RunStep:
    """The `StepAttention` of a `RunAttention`."""

    def __init__(self, layers: Mapping[int, _Layer], pieces: StepPieces) -> None:
        self.positions_T = pieces.positions_T
        self._layers = layers
        self._pieces = pieces

    def keep(self, layer: int, kept: Kept) -> None:
        """Only keeps keys and values."""
        self._layers[layer].pool.write(self._pieces.slots_T, *kept)

    def attend(self, layer: int, q_TKGD: Tensor, kept: Kept | None) -> Tensor:
        """Keeps the rows' keys and values, and gives what each row reads of its sequence [T, K, G, E]."""
        own = self._layers[layer]
        if kept is not None:
            self.keep(layer, kept)
        return _attended(own, q_TKGD, self._pieces.groups[own.reach])


def _attended(layer: _Layer, q_TKGD: Tensor, groups: Sequence[Group]) -> Tensor:
    """In the dtype of q."""
    parts: list[Part] = []
    for group in groups:
        parts += [_part(layer, q_TKGD, piece) for piece in group.pieces]
        if group.rows_N is not None:
            parts = [merged(q_TKGD.shape[0], parts, group.rows_N)]
    outs, lses = zip(*parts, strict=True)
    out_TKGE = torch.cat(outs)
    if layer.sinks_KG is not None:
        out_TKGE = with_sinks((out_TKGE, torch.cat(lses)), layer.sinks_KG)
    return out_TKGE.to(q_TKGD.dtype)


def _part(layer: _Layer, q_TKGD: Tensor, piece: Piece) -> Part:
    q_rows = q_TKGD.narrow(0, piece.first_row, piece.rows)
    keys, values = layer.pool.run(piece.first_slot, piece.slots)
    if piece.sees == "ahead":
        return reversed_pass(layer.attend_pass, q_rows, keys, values)
    return layer.attend_pass(q_rows, keys, values, piece.sees == "back")
