"""What each rank of a stage has of a model, when its layers are split over several devices.

Owns the split: query heads with the key/value heads that they read, columns of the feed-forward or experts whole, and
the vocabulary. A rank's part is again a model of the same kind, only smaller, so that whatever works on a model works
on a part. Planner, daemon and ranks all ask here, so they agree without telling each other. Knows neither nodes nor
tensors.

Source of the split: Shoeybi et al., Megatron-LM (2019); of spread experts: Lepikhin et al., GShard (2020).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from layerline.errors import PlanInvalidError
from layerline.models.cuts import column_ranges, head_ranges, proportional
from layerline.models.expert_placement import ExpertPlacement
from layerline.models.expert_rows import busiest_of_a_row
from layerline.models.head_groups import HeadGroups
from layerline.models.recurrent import DeltaNetSpec, Mamba2Spec, RecurrentSpec, ShortConvSpec
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec
from layerline.sharing import Sharing


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeExperts:
    """The experts that are whole on a rank at first, and how many it has room for.

    `of_a_row` is how many of a row's experts the rank with the most of them has, on average over even choices. Of those
    that a rank has, so many are `on_device`, the others beside it.
    """

    own: range
    room: int
    of_a_row: float
    on_device: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerPart:
    """The part of a layer that one rank has: neighbouring heads of what mixes tokens, and feed-forward columns.

    A rank may have no heads. Where it has `whole_experts` it has no columns of others; a shared expert is split by
    columns or, if `deals_shared`, whole on every rank, each of which computes some rows.
    """

    heads: range
    kv_heads: range  # those that `heads` read; a neighbouring rank may have one of them too
    intermediate: range  # columns of the feed-forward, or of each expert
    shared: range = range(0)  # of the shared expert
    whole_experts: WholeExperts | None = None
    deals_shared: bool = False

    def part_of(self, layer: LayerSpec) -> LayerSpec:
        """The part as a layer of its own; without heads it has the mixer as it is, which is not computed."""
        replace, feed_forward = dataclasses.replace, layer.feed_forward
        experts = feed_forward.experts
        if experts is not None:
            experts = replace(experts, shared_intermediate=len(self.shared))
        return replace(
            layer,
            mixer=_part_of_mixer(layer, len(self.heads), len(self.kv_heads)) if self.heads else layer.mixer,
            feed_forward=replace(feed_forward, intermediate=len(self.intermediate), experts=experts),
        )


def _part_of_mixer(layer: LayerSpec, heads: int, kv_heads: int) -> AttentionSpec | RecurrentSpec:
    if layer.recurrent is not None:
        return layer.recurrent.part(heads, kv_heads)
    return dataclasses.replace(layer.attention, heads=heads, kv_heads=kv_heads)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPart:
    """The part of a model that one rank has: of each kind of layer a part, and neighbouring token ids."""

    kinds: tuple[LayerPart, ...]
    vocabulary: range

    def part_of(self, model: ModelSpec) -> ModelSpec:
        """The part as a model of its own; its layers have the kinds that they have in the model."""
        kinds = tuple(part.part_of(kind) for part, kind in zip(self.kinds, model.kinds, strict=True))
        return dataclasses.replace(model, kinds=kinds, vocabulary=len(self.vocabulary))

    @property
    def has_heads(self) -> bool:
        """Whether it has any of what mixes tokens."""
        return len(self.kinds[0].heads) > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnBlocks:
    """How many numbers of a row share a block, in the matrices whose columns ranks divide."""

    attended: int = 1  # the columns are what heads have attended to
    feed_forward: int = 1
    shared: int = 1


def model_parts(
    model: ModelSpec,
    count: int,
    weights: Sequence[int] = (),
    blocks: ColumnBlocks = ColumnBlocks(),  # it is frozen
) -> tuple[ModelPart, ...]:
    """What each of `count` ranks has, in proportion to `weights` as far as the model allows; empty: all the same.

    Columns are cut between `blocks` as far as the model allows. Raises PlanInvalidError if the model cannot be split so
    often.
    """
    return parts_shared(model, Sharing(devices=count, proportions=tuple(weights)), blocks)


def parts_shared(
    model: ModelSpec, sharing: Sharing, blocks: ColumnBlocks, *, deals_shared: bool = False
) -> tuple[ModelPart, ...]:
    """What each rank has of a model that is shared so; `deals_shared` is for all layers with a shared expert.

    Raises PlanInvalidError if the model cannot be shared so.
    """
    count, with_heads = sharing.devices, sharing.with_heads
    if with_heads > 1:
        _check_norms(model, with_heads)
    heads = min(kind.mixer.heads for kind in model.kinds)
    widths = [width for kind in model.kinds for width in _divided_widths(kind, sharing, deals_shared=deals_shared)]
    _check_count(with_heads, min(heads, model.vocabulary, *widths), heads)
    _check_count(count, min([model.vocabulary, *widths]), heads)
    by_kind = [_layer_parts(kind, sharing, blocks, deals_shared=deals_shared) for kind in model.kinds]
    vocabularies = proportional(model.vocabulary, sharing.weights)
    by_rank = zip(*by_kind, strict=True)
    return tuple(
        ModelPart(kinds=kinds, vocabulary=vocabulary) for kinds, vocabulary in zip(by_rank, vocabularies, strict=True)
    )


def most_with_heads(model: ModelSpec, devices: int) -> int:
    """On how many of so many devices heads can be at most."""
    most = min(devices, *(kind.mixer.heads for kind in model.kinds))
    for kind in model.kinds:
        if isinstance(kind.mixer, Mamba2Spec):
            most = min(most, kind.mixer.groups)
        elif isinstance(kind.mixer, AttentionSpec) and kind.mixer.qk_norm == "rows":
            most = 1
    return most


def first_placement(part_of_ranks: Sequence[LayerPart]) -> ExpertPlacement | None:
    """Where experts of a layer are at first whose parts these are; None if they are not spread."""
    own = [part.whole_experts.own for part in part_of_ranks if part.whole_experts is not None]
    return ExpertPlacement.of_ranges(own) if own else None


def first_placements(model: ModelSpec, layers: range, parts: Sequence[ModelPart]) -> dict[int, ExpertPlacement]:
    """The same of these layers of a model of which the ranks have `parts`; none of a layer that has no spread ones."""
    by_kind = [first_placement([part.kinds[place] for part in parts]) for place in range(len(model.kinds))]
    found = {layer: by_kind[model.layer_kinds[layer]] for layer in layers}
    return {layer: placement for layer, placement in found.items() if placement is not None}


def _check_count(count: int, most: int, heads: int) -> None:
    if count > most:
        message = f"A model with {heads} attention heads cannot be split over {count} devices."
        raise PlanInvalidError(message, remedy=f"Let a stage have at most {most} devices.")


def _divided_widths(kind: LayerSpec, sharing: Sharing, *, deals_shared: bool) -> Sequence[int]:
    """The widths of what is divided by columns."""
    feed_forward = kind.feed_forward
    if feed_forward.experts is None or not sharing.spreads:
        return feed_forward.widths
    return feed_forward.widths[1:] if feed_forward.experts.apart or not deals_shared else ()


def _check_norms(model: ModelSpec, count: int) -> None:
    """Heads that are normed as one stay together."""
    what = ""
    for kind in model.kinds:
        if isinstance(kind.mixer, Mamba2Spec) and kind.mixer.groups < count:
            what = "what all heads of a group make"
        elif isinstance(kind.mixer, AttentionSpec) and kind.mixer.qk_norm == "rows":
            what = "the queries of all heads"
    if what:
        message = f"A {model.family} model norms {what} as one, so that devices cannot share them."
        raise PlanInvalidError(message, remedy="Let a stage have one device.")


def _layer_parts(layer: LayerSpec, sharing: Sharing, blocks: ColumnBlocks, *, deals_shared: bool) -> list[LayerPart]:
    feed_forward, weights, groups = layer.feed_forward, sharing.weights, HeadGroups.of(layer.mixer)
    experts = feed_forward.experts
    spreads = experts is not None and sharing.spreads
    whole = _whole_experts(layer, sharing) if spreads else [None] * sharing.devices
    width = feed_forward.intermediate
    columns = [range(width)] * sharing.devices if spreads else column_ranges(width, blocks.feed_forward, weights)
    shared = [range(0)] * sharing.devices
    deals = spreads and deals_shared and experts is not None and not experts.apart and experts.shared_intermediate > 0
    if deals and experts is not None:
        shared = [range(experts.shared_intermediate)] * sharing.devices
    elif experts is not None and experts.shared_intermediate:
        shared = column_ranges(experts.shared_intermediate, blocks.shared, weights)
    heads = _heads_shared(layer.mixer, weights[: sharing.with_heads], blocks)
    heads += [range(layer.mixer.heads, layer.mixer.heads)] * (sharing.devices - sharing.with_heads)
    return [
        LayerPart(
            heads=rank_heads,
            kv_heads=groups.read_by(rank_heads) if rank_heads else range(0),
            intermediate=own,
            shared=own_shared,
            whole_experts=own_experts,
            deals_shared=deals,
        )
        for rank_heads, own, own_shared, own_experts in zip(heads, columns, shared, whole, strict=True)
    ]


def expert_ranges(count: int, sharing: Sharing) -> list[range]:
    """Which of so many experts each rank has at first; of fewer than there are ranks one each, as far as they go."""
    if count < sharing.devices:
        return [range(rank, rank + 1) if rank < count else range(0) for rank in range(sharing.devices)]
    return proportional(count, sharing.weights)


def _whole_experts(layer: LayerSpec, sharing: Sharing) -> list[WholeExperts]:
    experts = layer.feed_forward.experts
    assert experts is not None, "it has experts that are spread"
    ranges = expert_ranges(experts.count, sharing)
    of_a_row = busiest_of_a_row(experts.chosen, [len(own) / experts.count for own in ranges])
    rooms = [min(experts.count, len(own) + sharing.repeats) for own in ranges]
    on_device = [min(room, sharing.device_experts) if sharing.beside else room for room in rooms]
    return [
        WholeExperts(own=own, room=room, of_a_row=of_a_row, on_device=held)
        for own, room, held in zip(ranges, rooms, on_device, strict=True)
    ]


def _heads_shared(mixer: AttentionSpec | RecurrentSpec, weights: Sequence[int], blocks: ColumnBlocks) -> list[range]:
    """The heads that each rank has."""
    if isinstance(mixer, ShortConvSpec):
        return column_ranges(mixer.channels, blocks.attended, weights)
    if isinstance(mixer, Mamba2Spec):
        heads = mixer.heads // mixer.groups
        return [range(heads * own.start, heads * own.stop) for own in proportional(mixer.groups, weights)]
    value_dim = mixer.value_dim if isinstance(mixer, DeltaNetSpec) else mixer.made_value_dim
    heads_of_a_block = blocks.attended // math.gcd(blocks.attended, value_dim)
    return head_ranges(HeadGroups.of(mixer), weights, heads_of_a_block)
