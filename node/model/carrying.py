"""The pass of rows through a stage whose rows carry more than the residual, or whose layers read pages of others.

Owns what is taken out of a row and put into one. `layerline.models.row_layout` says what that is.

Shapes: T rows, N numbers of a row, C hidden, K key-value heads, D numbers of a key, E numbers of a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from layerline.frames import Span
from layerline.models.row_layout import RowLayout, StageRows
from node.model.attention.backend import Kept, PagedAttention, StepAttention
from node.model.decoder import Decoder
from node.model.recurrent.slots import StepSlots
from node.ranks.group import RankGroup
from node.slices.carried_heads import CarriedHeads


class _Recorded:
    """A step that remembers the keys and values of some layers, by their number in the stage."""

    def __init__(self, step: StepAttention, wanted: Sequence[int]) -> None:
        self.positions_T = step.positions_T
        self.kept: dict[int, Kept] = {}
        self._step = step
        self._wanted = frozenset(wanted)

    def keep(self, layer: int, kept: Kept) -> None:
        """As the step does it."""
        self._step.keep(layer, kept)

    def attend(self, layer: int, q_TKGD: Tensor, kept: Kept | None) -> Tensor:
        """As the step does it."""
        if layer in self._wanted:
            assert kept is not None, "a layer whose keys others read makes some"
            self.kept[layer] = kept
        return self._step.attend(layer, q_TKGD, kept)


class CarryingPass:
    """Passes rows through `decoder`; `heads` are those of each layer whose keys and values are in rows."""

    def __init__(
        self,
        decoder: Decoder,
        attention: PagedAttention,
        rows: StageRows,
        heads: Mapping[int, CarriedHeads],
        group: RankGroup,
    ) -> None:
        self._decoder = decoder
        self._attention = attention
        self._rows = rows
        self._heads = heads
        self._group = group

    def passed(
        self, brought: Tensor, ids_T: Tensor | None, spans: Sequence[Span], slots: StepSlots
    ) -> tuple[Tensor, Tensor]:
        """The residual [T, C] after the layers, and the rows [T, N] for the next stage."""
        rows, decoder, first_TC = self._rows, self._decoder, None
        if rows.into is None:
            ids_T, first_TC = brought, decoder.embed(brought)
            x_TC = first_TC.clone()
        else:
            hidden = rows.into.hidden
            x_TC = brought[:, :hidden].contiguous()
            if rows.into.has_first:
                first_TC = brought[:, hidden : 2 * hidden].contiguous()
        step = self._attention.plan(spans)
        self._keep(step, brought)
        recorded = _Recorded(step, [source - rows.layers.start for source in rows.made])
        inputs: Sequence[Tensor] = ()
        if decoder.token_inputs is not None:
            assert ids_T is not None, "a frame has been checked for ids"
            assert first_TC is not None, "rows carry the first residual where layers have inputs"
            inputs = decoder.token_inputs(ids_T, first_TC)
        decoder.layers_(x_TC, recorded, slots, inputs)
        return x_TC, x_TC if rows.out is None else self._row(rows.out, x_TC, first_TC, recorded, brought)

    def _keep(self, step: StepAttention, brought_TN: Tensor) -> None:
        """Writes the keys and values that rows bring of layers outside to pages."""
        into = self._rows.into
        for place, source in enumerate(self._rows.outside):
            assert into is not None, "nothing is before the first stage"
            own = self._heads[source]
            carried_TN = brought_TN.narrow(1, into.start_of(source), into.source_numbers[into.sources.index(source)])
            keys_TKD = carried_TN[:, : own.key_numbers].reshape(len(carried_TN), own.all_heads, -1)
            values_TKE = carried_TN[:, own.key_numbers :].reshape(len(carried_TN), own.all_heads, -1)
            heads = slice(own.own.start, own.own.stop)
            step.keep(len(self._rows.layers) + place, (keys_TKD[:, heads], values_TKE[:, heads]))

    def _row(
        self, out: RowLayout, x_TC: Tensor, first_TC: Tensor | None, recorded: _Recorded, brought: Tensor
    ) -> Tensor:
        row_TN = x_TC.new_zeros(len(x_TC), out.numbers)
        row_TN[:, : out.hidden] = x_TC
        if out.has_first:
            assert first_TC is not None, "it is made or brought"
            row_TN[:, out.hidden : 2 * out.hidden] = first_TC
        into = self._rows.into
        for source, numbers in zip(out.sources, out.source_numbers, strict=True):
            place_TN = row_TN.narrow(1, out.start_of(source), numbers)
            if source in self._rows.layers:
                place_TN.copy_(self._whole(self._heads[source], *recorded.kept[source - self._rows.layers.start]))
            else:
                assert into is not None, "what goes on has come"
                place_TN.copy_(brought.narrow(1, into.start_of(source), numbers))
        return row_TN

    def _whole(self, own: CarriedHeads, k_TKD: Tensor, v_TKE: Tensor) -> Tensor:
        """The keys and values of all heads, of which each rank has some."""
        if self._group.count == 1:
            return torch.cat([k_TKD.flatten(1), v_TKE.flatten(1)], 1)
        skipped = own.given.start - own.own.start
        parts = []
        for made_TKD in (k_TKD, v_TKE):
            part_TKD = made_TKD.new_zeros(len(made_TKD), own.all_heads, made_TKD.shape[2])
            part_TKD[:, own.given.start : own.given.stop] = made_TKD[:, skipped:]
            parts.append(part_TKD.flatten(1))
        whole_TN = torch.cat(parts, 1)
        self._group.all_reduce_(whole_TN)
        return whole_TN
