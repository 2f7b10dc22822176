"""What each rank of a stage has of a model, when its layers are split over several devices.

Owns the split: query heads with the key/value heads that they read, columns of the feed-forward, and the vocabulary.
A rank's part is again a model of the same kind, only smaller, so that whatever works on a model works on a part.
Planner, daemon and ranks all ask here, so they agree without telling each other. Knows neither nodes nor tensors.

Source of the split: Shoeybi et al., Megatron-LM (2019).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from layerline.checks import require
from layerline.errors import PlanInvalidError
from layerline.models.head_groups import HeadGroups
from layerline.models.recurrent import DeltaNetSpec, Mamba2Spec, RecurrentSpec, ShortConvSpec
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec

COLUMNS = 32  # the feed-forward is cut at multiples of it where it can be: most storage types have blocks of 32
TOLERATED = 1.05  # a rank with so many times its due is not worth mention


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerPart:
    """The part of a layer that one rank has: neighbouring heads of what mixes tokens, and feed-forward columns."""

    heads: range
    kv_heads: range  # those that `heads` read; a neighbouring rank may have one of them too
    intermediate: range  # columns of the feed-forward, or of each expert
    shared: range = range(0)  # of the shared expert

    def part_of(self, layer: LayerSpec) -> LayerSpec:
        """The part as a layer of its own."""
        replace, feed_forward = dataclasses.replace, layer.feed_forward
        experts = feed_forward.experts
        if experts is not None:
            experts = replace(experts, shared_intermediate=len(self.shared))
        return replace(
            layer,
            mixer=_part_of_mixer(layer, len(self.heads), len(self.kv_heads)),
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
    weights = tuple(weights) or (1,) * count
    require(len(weights) == count and min(weights, default=0) > 0, "one positive weight is needed for each rank")
    if count > 1:
        _check_norms(model, count)
    heads = min(kind.mixer.heads for kind in model.kinds)
    widths = [width for kind in model.kinds for width in kind.feed_forward.widths]
    most = min(heads, model.vocabulary, *widths)
    if count > most:
        message = f"A model with {heads} attention heads cannot be split over {count} devices."
        raise PlanInvalidError(message, remedy=f"Let a stage have at most {most} devices.")
    by_kind = [_layer_shares(kind, weights, blocks) for kind in model.kinds]
    vocabularies = _proportional(model.vocabulary, weights)
    by_rank = zip(*by_kind, strict=True)
    return tuple(
        ModelPart(kinds=kinds, vocabulary=vocabulary) for kinds, vocabulary in zip(by_rank, vocabularies, strict=True)
    )


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


def _layer_shares(layer: LayerSpec, weights: Sequence[int], blocks: ColumnBlocks) -> list[LayerPart]:
    columns = _column_ranges(layer.feed_forward.intermediate, blocks.feed_forward, weights)
    shared = [range(0)] * len(weights)
    if layer.feed_forward.experts is not None and layer.feed_forward.experts.shared_intermediate:
        shared = _column_ranges(layer.feed_forward.experts.shared_intermediate, blocks.shared, weights)
    mixer, groups = layer.mixer, HeadGroups.of(layer.mixer)
    return [
        LayerPart(
            heads=rank_heads,
            kv_heads=groups.read_by(rank_heads),
            intermediate=own,
            shared=own_shared,
        )
        for rank_heads, own, own_shared in zip(_heads_shared(mixer, weights, blocks), columns, shared, strict=True)
    ]


def _heads_shared(mixer: AttentionSpec | RecurrentSpec, weights: Sequence[int], blocks: ColumnBlocks) -> list[range]:
    """The heads that each rank has."""
    if isinstance(mixer, ShortConvSpec):
        return _column_ranges(mixer.channels, blocks.attended, weights)
    if isinstance(mixer, Mamba2Spec):
        heads = mixer.heads // mixer.groups
        return [range(heads * own.start, heads * own.stop) for own in _proportional(mixer.groups, weights)]
    value_dim = mixer.value_dim if isinstance(mixer, DeltaNetSpec) else mixer.made_value_dim
    heads_of_a_block = blocks.attended // math.gcd(blocks.attended, value_dim)
    return _head_ranges(HeadGroups.of(mixer), weights, heads_of_a_block)


def _column_ranges(intermediate: int, block: int, weights: Sequence[int]) -> list[range]:
    """So many columns cut in proportion to `weights`, between blocks if that can be."""
    units = (unit for unit in (block, COLUMNS) if intermediate % unit == 0 and intermediate // unit >= len(weights))
    unit = max(units, default=1)
    return [range(unit * own.start, unit * own.stop) for own in _proportional(intermediate // unit, weights)]


def unevenness(model: ModelSpec, parts: Sequence[ModelPart], weights: Sequence[int] = ()) -> str:
    """One sentence on what could not be split in proportion, for each kind of layer; empty if all was."""
    weights = tuple(weights) or (1,) * len(parts)
    sentences = [
        _unevenness(kind, [part.kinds[place] for part in parts], weights) for place, kind in enumerate(model.kinds)
    ]
    return " ".join(sentence for sentence in dict.fromkeys(sentences) if sentence)


def _unevenness(layer: LayerSpec, parts: Sequence[LayerPart], weights: Sequence[int]) -> str:
    mixer, intermediate = layer.mixer, layer.feed_forward.intermediate
    heads, columns = [len(part.heads) for part in parts], [len(part.intermediate) for part in parts]
    repeated = sum(len(part.kv_heads) for part in parts) > mixer.kv_heads
    sentences = []
    if repeated or not _is_even(heads, weights):
        groups = "1 group" if mixer.kv_heads == 1 else f"{mixer.kv_heads} groups"
        whose = "attention" if isinstance(mixer, AttentionSpec) else "recurrent"
        sentence = f"The {mixer.heads} {whose} heads in {groups} are split {_sum_of(heads)}"
        held = f"{_sum_of([len(part.kv_heads) for part in parts])} key/value heads"
        held = "the whole latent on each" if isinstance(mixer, AttentionSpec) and mixer.latent else held
        sentences.append(f"{sentence}, with {held}." if repeated else f"{sentence}.")
    if not _is_even(columns, weights):
        sentences.append(f"The {intermediate} columns of the feed-forward are split {_sum_of(columns)}.")
    return " ".join(sentences)


def _is_even(sizes: Sequence[int], weights: Sequence[int]) -> bool:
    """Whether none is much more than its due."""
    dues = (sum(sizes) * weight / sum(weights) for weight in weights)
    return all(size <= TOLERATED * due for size, due in zip(sizes, dues, strict=True))


def _sum_of(sizes: Sequence[int]) -> str:
    return " + ".join(map(str, sizes))


def _proportional(total: int, weights: Sequence[int]) -> list[range]:
    """0..total - 1 cut into neighbouring ranges in proportion to `weights`, each of at least one."""
    count, sum_of_weights = len(weights), sum(weights)
    edges = [0]
    for rank, weight in enumerate(accumulate(weights), 1):
        nearest = (2 * total * weight + sum_of_weights) // (2 * sum_of_weights)
        edges.append(min(max(nearest, edges[-1] + 1), total - (count - rank)))
    return [range(first, end) for first, end in pairwise(edges)]


def _head_ranges(groups: HeadGroups, weights: Sequence[int], unit: int) -> list[range]:
    """The cut into neighbouring ranges, each a plain decoder's, whose slowest rank is the fastest.

    It is between multiples of `unit` heads, if that can be. Of equals the one with the fewest key/value heads in all,
    then the one with more heads on the earlier ranks.
    """
    heads, count = groups.heads, len(weights)
    costs = [math.lcm(*weights) // weight for weight in weights]

    @functools.cache
    def best(rank: int, first: int) -> tuple[int, int, tuple[int, ...]] | None:
        """(time of the slowest, key/value heads, minus the sizes) of `rank` and those after it, from head `first`."""
        if rank == count:
            return (0, 0, ()) if first == heads else None
        cuts = []
        for end in groups.ends(first):
            if end % unit and end != heads:
                continue
            rest = best(rank + 1, end)
            if rest is not None:
                slowest = max(costs[rank] * (end - first), rest[0])
                held = len(groups.read_by(range(first, end))) + rest[1]
                cuts.append((slowest, held, (first - end, *rest[2])))
        return min(cuts, default=None)

    found = best(0, 0)
    if found is None:
        assert unit > 1, "as many ranks as heads can be served in any case"
        return _head_ranges(groups, weights, 1)
    edges = accumulate((-size for size in found[2]), initial=0)
    return [range(first, end) for first, end in pairwise(edges)]
