"""Matching the tensors that a container stores with those that a family's model consists of.

Every tensor of every layer must be there in its right shape, and none that the model would not use: a bias
that layerline does not know would change every answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.decoder_rules import OF_TOKEN_INPUTS
from layerline.models.family import Family
from layerline.models.quantised.transposed import TRANSPOSED, seen_transposed
from layerline.models.spec import ModelSpec
from layerline.models.stored import REMEDY, tensor_corrupt
from layerline.models.tensor_rules import EXPERTS, Place, TensorRule, side_lengths
from layerline.models.tensor_table import RowRange, StoredTensor, TensorEntry

EMBEDDING, OUTPUT, PREFIX = "model.embed_tokens.weight", "lm_head.weight", "model."
FURTHER = "mtp."  # what guesses further tokens, where that is not in layers behind the last
_LAYER_NAME = re.compile(r"(?:model\.layers|blk)\.(\d{1,6})\.")
IGNORED = (
    "*.rotary_emb.inv_freq",
    "rope_freqs.weight",
    "rope_factors_*.weight",
)  # they hold what config or metadata imply


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """A tensor of the model, and the rows of the stored tensor called `stored_name` that it is.

    That one may be a stack of so many `experts`, of which it is in one's, as `place` tells.
    """

    name: str
    shape: tuple[int, ...]
    stored_name: str
    first_row: int
    group: int
    step: int
    rope_pairs: int
    experts: int
    place: Place

    @property
    def end_row(self) -> int:
        last = self.shape[0] - 1
        return self.first_row + last // self.group * self.step + last % self.group + 1


def lay_out(
    family: Family,
    spec: ModelSpec,
    container: str,
    stored: Iterable[StoredTensor],
    without_effect: Container[str] = (),
) -> tuple[TensorEntry, ...]:
    """The model's tensors in canonical order, their hashes still empty.

    Stored ones `without_effect` need not be any of them. Raises ModelCorruptError for a missing tensor or a wrong
    shape, ModelUnsupportedError for one too many.
    """
    tensors = by_canonical_names(stored) if container == "safetensors" else {tensor.name: tensor for tensor in stored}
    if spec.tied_output and OUTPUT in tensors:
        tensors.setdefault(EMBEDDING, tensors[OUTPUT])  # as transformers: whichever there is
    lengths = [side_lengths(spec, kind) for kind in spec.kinds]
    wanted = [
        _wanted(spec, lengths[spec.layer_kinds[layer]], rule, _place(rule, layer, container, tensors), layer)
        for rule, layer in _rules(family, spec)
    ]
    rows: dict[str, int] = {}
    for tensor in wanted:
        rows[tensor.stored_name] = max(rows.get(tensor.stored_name, 0), tensor.end_row)
    entries = tuple(_entry(tensor, rows[tensor.stored_name], container, tensors) for tensor in wanted)
    known = {*rows, *_unread(family, spec, container)}
    unused = (tensor.name for name, tensor in tensors.items() if name not in known)
    _refuse_unused(family, spec, (name for name in unused if name not in without_effect))
    return entries


def by_canonical_names(stored: Iterable[StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors of a folder by the names beside a language-modelling head; a base model has no prefix."""
    tensors = {tensor.name: tensor for tensor in stored}
    if EMBEDDING.removeprefix(PREFIX) not in tensors or any(name.startswith(PREFIX) for name in tensors):
        return tensors
    return {name if name == OUTPUT else PREFIX + name: tensor for name, tensor in tensors.items()}


def _rules(family: Family, spec: ModelSpec) -> Iterator[tuple[TensorRule, int]]:
    for rule in family.end_tensors:
        if rule.name != "output" or not spec.tied_output:
            yield rule, 0
    if spec.token_input:
        yield from ((rule, 0) for rule in OF_TOKEN_INPUTS)
    for layer in range(spec.layers):
        yield from ((rule, layer) for rule in family.layer_tensors(spec.layer(layer)))


def _unread(family: Family, spec: ModelSpec, container: str) -> Iterator[str]:
    """What files may have for layers that do not read it."""
    if family.unread_tensors is None:
        return
    for layer in range(spec.layers):
        for rule in family.unread_tensors(spec.layer(layer)):
            yield (rule.gguf if container == "gguf" else rule.safetensors).name.format(n=layer)


def _place(rule: TensorRule, layer: int, container: str, tensors: Mapping[str, StoredTensor]) -> Place:
    """Where the container has the tensor: of several places the first where there is one, or else the usual one."""
    usual = rule.gguf if container == "gguf" else rule.safetensors
    there = (place for place in (usual, *rule.otherwise) if place.name.format(n=layer) in tensors)
    return next(there, usual)


def _wanted(spec: ModelSpec, lengths: Mapping[str, int], rule: TensorRule, place: Place, layer: int) -> _Wanted:
    groups, group, step = 1, 1, 1
    if place.groups:
        groups = lengths[place.groups]
        group, step = (sum(lengths[side] for side in sides) // groups for sides in (rule.sides[:1], place.turns))
    return _Wanted(
        name=rule.name.format(n=layer),
        shape=tuple(lengths[side] for side in rule.sides),
        stored_name=place.name.format(n=layer),
        first_row=sum(lengths[side] for side in place.after) // groups,
        group=group,
        step=step,
        rope_pairs=spec.layer(layer).attention.head_dim if place.rope_pairs else 0,
        experts=lengths[EXPERTS],
        place=place,
    )


def _entry(wanted: _Wanted, rows: int, container: str, tensors: Mapping[str, StoredTensor]) -> TensorEntry:
    tensor = tensors.get(wanted.stored_name)
    if tensor is None:
        raise _missing(wanted, container)
    if len(tensor.shape) == 3 and wanted.place.expert is None:
        tensor = replace(tensor, shape=(tensor.rows, tensor.shape[-1]))  # each head's matrix after the other
    if len(tensor.shape) == 2 and len(wanted.shape) == 1 and wanted.place.expert is None:
        tensor = replace(tensor, shape=(math.prod(tensor.shape),))  # a row for each head, or for each of a group
    shape = (rows, *wanted.shape[1:])
    own_shape, expert = shape[::-1] if wanted.place.recipe == TRANSPOSED else shape, wanted.place.expert
    stored_shape = own_shape if expert is None else (wanted.experts, *own_shape)
    if stored_shape == (1, *tensor.shape):
        tensor = replace(tensor, shape=stored_shape)  # llama.cpp's converter makes a vector of a matrix of one row
    if tensor.shape != stored_shape:
        reason = f"has the shape {list(tensor.shape)}, but the model's configuration says {list(stored_shape)}"
        raise tensor_corrupt(tensor.name, tensor.file, reason)
    if expert is not None:
        tensor = tensor.matrix(expert)
    if wanted.place.recipe == TRANSPOSED:
        tensor = seen_transposed(tensor)
    part = RowRange(
        tensor=tensor, first_row=wanted.first_row, rows=wanted.shape[0], group=wanted.group, step=wanted.step
    )
    return TensorEntry(
        name=wanted.name,
        shape=wanted.shape,
        ranges=(part,),
        rope_pairs=wanted.rope_pairs,
        added=wanted.place.added,
        minus_exponential=wanted.place.minus_exponential,
    )


def _missing(wanted: _Wanted, container: str) -> ModelCorruptError:
    message = f"Tensor {wanted.stored_name} is missing from the model's {container} files."
    if wanted.stored_name != OUTPUT:
        return ModelCorruptError(message, remedy=REMEDY)
    remedy = "They seem to be those of a base model; fetch or save the one with its language-modelling head."
    return ModelCorruptError(message, remedy=remedy)


def _refuse_unused(family: Family, spec: ModelSpec, unused: Iterable[str]) -> None:
    """A tied model may come with a copy of its embedding as output; some files hold what their config implies."""
    ignored = (*IGNORED, *([OUTPUT] if spec.tied_output else []))
    for name in sorted(unused):
        if family.has_further_layers and (_layer_number(name) >= spec.layers or name.startswith(FURTHER)):
            continue
        if not any(fnmatchcase(name, pattern) for pattern in ignored):
            raise ModelUnsupportedError(f"Tensor {name} is none that a {spec.family} model is known to have.")


def _layer_number(name: str) -> int:
    """The layer whose tensor has that name; -1 if it is none's."""
    found = _LAYER_NAME.match(name)
    return int(found.group(1)) if found else -1
