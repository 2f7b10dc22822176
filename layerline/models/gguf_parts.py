"""The header of a GGUF model in several files. The first has the metadata, and each its own tensors."""

from __future__ import annotations

import os
from pathlib import Path

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.gguf_file import REMEDY, GgufFile, read_gguf
from layerline.models.part_names import MAX_PARTS, GgufPart, first_part, part_paths, whole_name
from layerline.models.stored import tensor_corrupt
from layerline.models.tensor_table import StoredTensor


def read_whole_gguf(path: Path) -> GgufFile:
    """The headers of all parts of the model at `path` as one; a ModelError names what is wrong with one of them."""
    first = read_gguf(path)
    count = _split(first, "count")
    if count <= 1:
        return first
    if count > MAX_PARTS:
        message = f"{path.name} is one of {count} parts of a model, more than the {MAX_PARTS} that can be."
        raise ModelUnsupportedError(message, remedy="Join its parts with llama-gguf-split --merge.")
    part = GgufPart.of(path.name)
    if part is None or part.count != count:
        message = f"{path.name} is one of {count} parts of a model, but is not called so."
        raise ModelUnsupportedError(message, remedy=f"Call them NAME-00001-of-{count:05}.gguf and so on.")
    if part.number != 1 and not os.path.lexists(first_part(path)):
        raise _missing(first_part(path), part)
    if part.number != 1:
        message = f"{path.name} is a later part of a model."
        raise ModelUnsupportedError(message, remedy=f"Name the first, {part.files[0]}.")
    tensors: dict[str, StoredTensor] = {}
    for index, own in enumerate(part_paths(path)):
        gguf = first if index == 0 else _part(own, part)
        if (_split(gguf, "no"), _split(gguf, "count")) != (index, count):
            raise _corrupt(own, f"says that it is another part than its name does ({_split(gguf, 'no') + 1})")
        for tensor in gguf.tensors:
            if tensor.name in tensors:
                raise tensor_corrupt(tensor.name, tensor.file, f"is also in {tensors[tensor.name].file}")
            tensors[tensor.name] = tensor
    if _split(first, "tensors.count", len(tensors)) != len(tensors):
        raise _corrupt(path, f"has {len(tensors)} tensors in all its parts, not {_split(first, 'tensors.count')}")
    return GgufFile(files=part_paths(path), metadata=first.metadata, tensors=tuple(tensors.values()))


def _part(path: Path, part: GgufPart) -> GgufFile:
    if not os.path.lexists(path):
        raise _missing(path, part)
    return read_gguf(path)


def _missing(path: Path, part: GgufPart) -> ModelCorruptError:
    message = f"Part {path.name} of the model {whole_name(path.name)} is missing: it has {part.count} parts."
    return ModelCorruptError(message, remedy="Put all of them into one folder.")


def _split(gguf: GgufFile, key: str, default: int = 0) -> int:
    value = gguf.metadata.get(f"split.{key}", default)
    if not isinstance(value, int) or value < 0:
        raise _corrupt(gguf.files[0], f"has the split.{key} {value!r}")
    return value


def _corrupt(path: Path, reason: str) -> ModelCorruptError:
    return ModelCorruptError(f"{path.name} {reason}.", remedy=REMEDY)
