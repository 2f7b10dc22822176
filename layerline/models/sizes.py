"""How many bytes and numbers the parts of a model are, once held: what planning and loading agree on.

Weights are counted from the tensor table, layer by layer; keys, values, states and what computing takes beside from the
description of the layers. A rank has of each tensor the rows and columns of its part, counted from the same table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from layerline.models.decoder_rules import ENDS
from layerline.models.held import WeightForm, divided_by
from layerline.models.known_families import family_of_config
from layerline.models.layer_size import HeldKind, SizedTensor, SizedTensors, weight_size
from layerline.models.model_parts import ColumnBlocks, LayerPart, ModelPart, parts_shared
from layerline.models.row_layout import read_outside
from layerline.models.slot_sizes import sequence_bytes
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import ATTENDED, FEED_FORWARD, SHARED, TensorRule
from layerline.models.tensor_table import TensorEntry
from layerline.models.token_input_sizes import TOKEN_TENSORS, token_input_sizes, token_norm_bytes
from layerline.models.weight_size import WeightSize
from layerline.models.workspace import workspace_bytes
from layerline.plan import DTYPE_BYTES, StageSpec
from layerline.sharing import MOST_COMING, Sharing


@dataclass(frozen=True, kw_only=True, slots=True)
class _Table:
    """The tensors of layers that are not alike, which of these each layer has, and those of the ends by name."""

    distinct: tuple[SizedTensors, ...]
    layers: tuple[int, ...]
    ends: tuple[tuple[str, SizedTensors], ...]
    of_token_inputs: tuple[TensorEntry, ...]

    @classmethod
    def of(cls, card: Described) -> _Table:
        """What a card has of the tensors that such a model consists of."""
        spec, entries = card.spec, {entry.name: entry for entry in card.tensors}
        rules_of = family_of_config(spec.family).layer_tensors
        rules = [tuple(rules_of(kind)) for kind in spec.kinds]

        def tensor(rule: TensorRule, layer: int = 0) -> SizedTensor:
            entry = entries.get(rule.name.format(n=layer))
            if entry is None:
                return SizedTensor(rule.sides, (0,) * len(rule.sides), "F32", rule.expert)
            return SizedTensor(rule.sides, entry.shape, entry.storage, rule.expert)

        of_layers = [tuple(tensor(rule, layer) for rule in rules[kind]) for layer, kind in enumerate(spec.layer_kinds)]
        places = {tensors: place for place, tensors in enumerate(dict.fromkeys(of_layers))}
        return cls(
            distinct=tuple(places),
            layers=tuple(places[tensors] for tensors in of_layers),
            ends=tuple((rule.name, (tensor(rule),)) for rule in ENDS),
            of_token_inputs=tuple(entries[name] for name in sorted(TOKEN_TENSORS)) if spec.token_input else (),
        )


class Described(Protocol):
    """What is known of a model, as a card has it."""

    @property
    def spec(self) -> ModelSpec:
        """Its description."""

    @property
    def tensors(self) -> Sequence[TensorEntry]:
        """Its tensor table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSizes:
    """What each layer and the ends of a model, or of one rank's part of it, take in `form` and `kv_dtype`.

    `kv_bytes` is what a position takes in the pages of each layer, or in the slots that go with them, and `slot_bytes`
    what the least slots take. `output` is the matrix that makes logits, whether or not it is the embedding as well.
    """

    model: ModelSpec
    part: ModelSpec  # what is held: the model, or the rank's part, which is again a model
    form: WeightForm
    kv_dtype: str
    layers: tuple[WeightSize, ...]
    kv_bytes: tuple[int, ...]
    slot_bytes: tuple[int, ...]
    embedding: WeightSize
    output: WeightSize
    final_norm: WeightSize
    table: _Table = field(repr=False)

    @classmethod
    def of(cls, card: Described, form: WeightForm, kv_dtype: str) -> ModelSizes:
        """Those of the whole model."""
        return _counted(card.spec, card.spec, _Table.of(card), form, kv_dtype)

    @classmethod
    def of_stage(cls, card: Described, spec: StageSpec) -> ModelSizes:
        """Those of the whole model in the form that a stage of it has."""
        form = WeightForm(dtype=spec.dtype, weights=spec.held_weights, kernels=bool(spec.precision))
        return cls.of(card, form, spec.held_kv_dtype)

    def parts(self, sharing: Sharing) -> tuple[ModelPart, ...]:
        """What each rank has, cut between the blocks that matrices are held in as far as the model allows.

        Where experts are spread a shared one is split by columns or whole on every rank, whichever takes less. Raises
        PlanInvalidError if the model cannot be shared so.
        """
        blocks = ColumnBlocks(
            attended=self._block(ATTENDED), feed_forward=self._block(FEED_FORWARD), shared=self._block(SHARED)
        )
        split = parts_shared(self.model, sharing, blocks)
        if not sharing.spreads or not any(map(_has_shared, self.model.kinds)):
            return split
        dealt = parts_shared(self.model, sharing, blocks, deals_shared=True)
        return min(split, dealt, key=self._most_bytes)

    def _most_bytes(self, parts: Sequence[ModelPart]) -> int:
        """What the layers take on the rank where they take most."""
        return max(sum(layer.held_bytes for layer in self.of_rank(part).layers) for part in parts)

    def _block(self, side: str) -> int:
        """How many columns along that side share a block, in every layer."""
        tensors = {tensor for layer in self.table.distinct for tensor in layer if tensor.sides[1:] == (side,)}
        columns = {(each.storage, each.lengths[-1]) for each in tensors}
        held = {self.form.storage(storage, range(length), length) for storage, length in columns}
        return math.lcm(*map(divided_by, held))

    def of_rank(self, part: ModelPart) -> ModelSizes:
        """Those of the part that one rank has."""
        own = part.part_of(self.model)
        return _counted(self.model, own, self.table, self.form, self.kv_dtype, part.kinds)

    @property
    def unpacks(self) -> bool:
        """Whether torch has to unpack matrices before it multiplies them: some take less than in the dtype."""
        sizes = (*self.layers, self.embedding, self.output)
        plain_bytes = DTYPE_BYTES[self.form.dtype]
        return not self.form.kernels and any(size.read_bytes < size.numbers * plain_bytes for size in sizes)

    def weights_bytes(self, layers: range) -> int:
        """Bytes of the weights of a stage: its layers, and embedding and output where it has those.

        A stage that has both ends of a model whose output is tied holds that matrix once.
        """
        own = sum(layer.held_bytes for layer in self.layers[layers.start : layers.stop])
        return own + self.ends_bytes(first=layers.start == 0, last=layers.stop == len(self.layers))

    def ends_bytes(self, *, first: bool, last: bool) -> int:
        """Bytes of the weights beside those of layers, in a stage that may have the model's first or last layer."""
        shared = first and last and self.model.tied_output
        return (
            first * self.embedding.held_bytes
            + last * self.final_norm.held_bytes
            + (last and not shared) * self.output.held_bytes
            + token_norm_bytes(self.model, self.form)
        )

    def converted(self, layers: range) -> frozenset[tuple[str, str]]:
        """As `WeightSize` has it, of a stage."""
        ends = [self.embedding] * (layers.start == 0) + [self.output] * (layers.stop == len(self.layers))
        return frozenset().union(*(size.converted for size in (*self.layers[layers.start : layers.stop], *ends)))

    def kv_bytes_per_token(self, layers: range) -> int:
        """Bytes that one position takes in a stage of `layers`.

        In KV pages, with those of earlier layers that it reads, and in the slots that go with them.
        """
        outside = sum(self.kv_bytes[source] for source in read_outside(self.model, layers))
        return sum(self.kv_bytes[layers.start : layers.stop]) + outside

    def workspace_bytes(self, max_rows: int, *, has_output: bool) -> int:
        """Bytes that a stage needs beside weights and KV while it computes a step of `max_rows` rows.

        Where experts are whole there is room for some more, which are loaded before others leave.
        """
        coming = MOST_COMING * max(layer.expert_bytes for layer in self.layers)
        return coming + workspace_bytes(
            self.model, self.part, self.form, max_rows, unpacks=self.unpacks, has_output=has_output
        )

    def beside_bytes(self, layers: range) -> int:
        """Bytes of the experts of a stage that lie beside its device, and of some that come before others leave."""
        own = sum(layer.beside_bytes for layer in self.layers[layers.start : layers.stop])
        return own + self.coming_beside_bytes if own else 0

    @property
    def coming_beside_bytes(self) -> int:
        """Bytes of the experts that may come beside the device before others leave."""
        return MOST_COMING * max(layer.beside_expert_bytes for layer in self.layers)


def _counted(
    model: ModelSpec,
    part: ModelSpec,
    table: _Table,
    form: WeightForm,
    kv_dtype: str,
    of_rank: Sequence[LayerPart] = (),
) -> ModelSizes:
    cuts = list(zip(part.layer_kinds, table.layers, strict=True))
    kinds = [HeldKind.of(model, part, place, of_rank[place] if of_rank else None) for place in range(len(model.kinds))]
    sizes = {(kind, tensors): weight_size(table.distinct[tensors], kinds[kind], form) for kind, tensors in set(cuts)}
    ends = {name: weight_size(tensors, kinds[0], form) for name, tensors in table.ends}
    layers = [sizes[cut] for cut in cuts]
    if model.token_input:
        inputs = token_input_sizes(model, part, {entry.name: entry for entry in table.of_token_inputs}, form)
        layers = [layer.beside(own) for layer, own in zip(layers, inputs, strict=True)]
    held = [sequence_bytes(kind.layer, model, kv_dtype) if kind.has_heads else (0, 0) for kind in kinds]
    return ModelSizes(
        model=model,
        part=part,
        form=form,
        kv_dtype=kv_dtype,
        layers=tuple(layers),
        kv_bytes=tuple(held[kind][1] for kind in part.layer_kinds),
        slot_bytes=tuple(held[kind][0] for kind in part.layer_kinds),
        embedding=ends["embedding"],
        output=ends["embedding" if model.tied_output else "output"],
        final_norm=ends["final_norm"],
        table=table,
    )


def _has_shared(layer: LayerSpec) -> bool:
    experts = layer.feed_forward.experts
    return experts is not None and experts.shared_intermediate > 0
