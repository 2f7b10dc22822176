"""Matching the tensors that a container stores with those that a family's model consists of.

Every tensor of every layer must be there in its right shape, and none that the model would not use: a bias
that layerline does not know would change every answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.families.family import Family, TensorRule, side_lengths
from layerline.models.spec import ModelSpec
from layerline.models.stored import REMEDY, tensor_corrupt
from layerline.models.tensor_table import RowRange, StoredTensor, TensorEntry


def lay_out(family: Family, spec: ModelSpec, container: str, stored: Iterable[StoredTensor]) -> tuple[TensorEntry, ...]:
    """The model's tensors in canonical order, their hashes still empty.

    Raises ModelCorruptError for a missing tensor or a wrong shape, ModelUnsupportedError for one too many.
    """
    remaining = {tensor.name: tensor for tensor in stored}
    entries = []
    for rule, layer in _wanted(family, spec):
        stored_name = (rule.gguf if container == "gguf" else rule.safetensors).format(n=layer)
        tensor = remaining.pop(stored_name, None)
        if tensor is None:
            message = f"Tensor {stored_name} is missing from the model's {container} files."
            raise ModelCorruptError(message, remedy=REMEDY)
        entries.append(_entry(family, spec, container, rule, layer, tensor))
    _refuse_unused(family, spec, remaining)
    return tuple(entries)


def _wanted(family: Family, spec: ModelSpec) -> Iterator[tuple[TensorRule, int]]:
    for rule in family.tensors:
        if "{n}" in rule.name:
            yield from ((rule, layer) for layer in range(spec.layers))
        elif rule.name != "output" or not spec.tied_output:
            yield rule, 0


def _entry(
    family: Family, spec: ModelSpec, container: str, rule: TensorRule, layer: int, tensor: StoredTensor
) -> TensorEntry:
    lengths = side_lengths(spec, spec.layer(layer))
    shape = tuple(lengths[side] for side in rule.sides)
    if tensor.shape != shape:
        reason = f"has the shape {list(tensor.shape)}, but the model's configuration says {list(shape)}"
        raise tensor_corrupt(tensor.name, tensor.file, reason)
    paired = container == "gguf" and rule.name.rpartition(".")[2] in family.gguf_rope_pairs
    return TensorEntry(
        name=rule.name.format(n=layer),
        shape=shape,
        ranges=(RowRange.whole(tensor),),
        rope_pairs=spec.layer(layer).attention.head_dim if paired else 0,
    )


def _refuse_unused(family: Family, spec: ModelSpec, unused: Iterable[str]) -> None:
    """A tied model may come with a copy of its embedding as output; some files hold what their config implies."""
    ignored = (*family.ignored, *(["lm_head.weight"] if spec.tied_output else []))
    for name in sorted(unused):
        if not any(fnmatchcase(name, pattern) for pattern in ignored):
            raise ModelUnsupportedError(f"Tensor {name} is none that a {family.name} model is known to have.")
