"""Saying how two models that should be one differ, so that a user knows which file to replace."""

from __future__ import annotations

import dataclasses
from itertools import zip_longest

from layerline.models.card import ModelCard
from layerline.models.recurrent import DeltaNetSpec, Mamba2Spec, ShortConvSpec
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec
from layerline.models.tensor_table import RowRange, TensorEntry


def describe_mismatch(a: ModelCard, b: ModelCard) -> str:
    """One phrase on the first difference that the digests of `a` and `b` have; empty if they are the same."""
    if a.digest == b.digest:
        return ""
    return _spec_difference(a, b) or _tensor_difference(a, b) or _tokenizer_difference(a, b)


def _spec_difference(a: ModelCard, b: ModelCard) -> str:
    return _field_difference(_ends(a.spec), _ends(b.spec), "") or _layer_difference(a.spec, b.spec)


def _ends(spec: ModelSpec) -> dict[str, object]:
    fields = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    del fields["kinds"], fields["layer_kinds"]
    return {"layers": spec.layers, **fields}


def _layer_difference(a: ModelSpec, b: ModelSpec) -> str:
    for index in range(a.layers):
        difference = _part_difference(a.layer(index), b.layer(index), f"layer {index} ")
        if difference:
            return difference
    return ""


def _part_difference(a: LayerSpec, b: LayerSpec, what: str) -> str:
    """The first difference in what a layer is described by, be it in what mixes tokens or in its feed-forward."""
    if type(a.mixer) is not type(b.mixer):
        return f"{what}is {_kind_of(a)} and {_kind_of(b)}"
    ours, theirs = dataclasses.asdict(a), dataclasses.asdict(b)
    for part, named in (("mixer", _kind_of(a)), ("feed_forward", "feed_forward")):
        difference = _field_difference(ours.pop(part), theirs.pop(part), f"{what}{named} ")
        if difference:
            return difference
    return _field_difference(ours, theirs, what)


def _kind_of(layer: LayerSpec) -> str:
    names = {AttentionSpec: "attention", ShortConvSpec: "convolution", DeltaNetSpec: "delta net", Mamba2Spec: "Mamba 2"}
    return names[type(layer.mixer)]


def _tokenizer_difference(a: ModelCard, b: ModelCard) -> str:
    return _field_difference(dataclasses.asdict(a.tokenizer), dataclasses.asdict(b.tokenizer), "tokenizer ")


def _field_difference(a: dict[str, object], b: dict[str, object], what: str) -> str:
    for field, value in a.items():
        if value != b[field]:
            shown = len(repr(value)) < 80 and len(repr(b[field])) < 80
            return f"{what}{field} is {value!r} and {b[field]!r}" if shown else f"{what}{field} differs"
    return ""


def _tensor_difference(a: ModelCard, b: ModelCard) -> str:
    ours, theirs = (sorted(card.tensors, key=lambda entry: entry.name) for card in (a, b))
    for one, other in zip_longest(ours, theirs):
        if one is None or other is None or one.name != other.name:
            missing = min(entry.name for entry in (one, other) if entry is not None)
            return f"tensor {missing} is only in one of them"
        difference = _entry_difference(one, other)
        if difference:
            return f"tensor {one.name} ({one.stored_names}) {difference}"
    return ""


def _entry_difference(a: TensorEntry, b: TensorEntry) -> str:
    if a.storage != b.storage:
        return f"is stored as {a.storage} and {b.storage}"
    if a.shape != b.shape:
        return f"has the shapes {list(a.shape)} and {list(b.shape)}"
    if a.rope_pairs != b.rope_pairs:
        return "has its rows in another order"
    if a.added != b.added:
        return "has its numbers from another zero"
    if a.minus_exponential != b.minus_exponential:
        return "has the logarithms of its numbers in one of them"
    for one, other in zip_longest(a.ranges, b.ranges):
        difference = _range_difference(one, other)
        if difference:
            return difference
    return ""


def _range_difference(a: RowRange | None, b: RowRange | None) -> str:
    if a is None or b is None or _rows(a) != _rows(b):
        return "lies in other rows of what is stored"
    if a.tensor.sha256 != b.tensor.sha256:
        return f"holds other numbers (sha256 {a.tensor.sha256[:12]}… and {b.tensor.sha256[:12]}…)"
    return ""


def _rows(part: RowRange) -> tuple[int, ...]:
    return part.first_row, part.rows, part.group, part.step
