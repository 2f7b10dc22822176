"""The headers of a folder of safetensors: one file, or the shards that model.safetensors.index.json names.

Headers are read here and not with the `safetensors` library, which does not tell where tensors lie. Does not
know what any tensor is for, but for the pieces of a quantised matrix (`quantised`).

Format: https://huggingface.co/docs/safetensors/index#format
"""

from __future__ import annotations

import json
from pathlib import Path

from layerline.errors import ModelCorruptError
from layerline.models.fields import Fields
from layerline.models.json_file import read_json, strict_object
from layerline.models.other_models import refuse_other_folder
from layerline.models.quantised.compose import composed
from layerline.models.quantised.config import Quantisation
from layerline.models.stored import (
    MAX_TENSORS,
    OTHER_BYTES,
    check_places,
    check_weights,
    sized_bytes,
    tensor_corrupt,
)
from layerline.models.tensor_table import StoredTensor
from layerline.models.unreadable import open_model_file, unreadable

REMEDY = "Fetch the model anew."
INDEX_NAME = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000  # the bound of the format itself


def read_safetensors(folder: Path, quantisation: Quantisation | None = None) -> tuple[StoredTensor, ...]:
    """Every tensor of the folder, of all shards; matrices in pieces are put together as `quantisation` says.

    Raises a ModelError that names what is wrong.
    """
    weight_map = _weight_map(folder)
    files = sorted(set(weight_map.values())) if weight_map else [_only_file(folder)]
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        for tensor in _read_header(folder, file):
            if tensor.name in tensors:
                raise tensor_corrupt(tensor.name, file, f"is also in {tensors[tensor.name].file}")
            tensors[tensor.name] = tensor
    for name, file in weight_map.items():
        if name not in tensors or tensors[name].file != file:
            raise tensor_corrupt(name, file, f"is missing, although {INDEX_NAME} puts it there")
    stored = tuple(tensors.values())
    if quantisation is not None:
        stored = composed(stored, quantisation)
    for tensor in stored:
        if not tensor.pieces:
            check_weights(tensor.name, tensor.file, tensor.storage, tensor.shape)
    return stored


def _weight_map(folder: Path) -> dict[str, str]:
    """Tensor name to file name as the index has it; empty without an index."""
    if not (folder / INDEX_NAME).exists():
        return {}
    index = Fields(read_json(folder / INDEX_NAME), INDEX_NAME)
    weight_map = index.raw("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or len(weight_map) > MAX_TENSORS:
        raise index.wrong("weight_map", "an object that names each tensor's file")
    for name, file in weight_map.items():
        if not isinstance(file, str) or not _is_plain_name(file):
            reason = f"{INDEX_NAME} puts tensor {name} into {file!r}, which is not a file of this folder"
            raise ModelCorruptError(f"{reason}.", remedy=REMEDY)
    return weight_map


def _is_plain_name(file: str) -> bool:
    return file.endswith(".safetensors") and not any(letter in file for letter in "/\\:\0")


def _only_file(folder: Path) -> str:
    files = sorted(path.name for path in folder.glob("*.safetensors") if not path.name.startswith("."))
    if "model.safetensors" in files:
        return "model.safetensors"
    if not files:
        refuse_other_folder(folder)
        message = f"{folder} has a config.json, but no *.safetensors files with weights."
        raise ModelCorruptError(message, remedy=REMEDY)
    if len(files) != 1:
        reason = f"{len(files)} safetensors files and no {INDEX_NAME}"
        raise ModelCorruptError(f"{folder} has {reason}.", remedy=REMEDY)
    return files[0]


def _read_header(folder: Path, file: str) -> list[StoredTensor]:
    try:
        with open_model_file(folder / file) as opened:
            file_bytes = opened.seek(0, 2)
            opened.seek(0)
            header_bytes = int.from_bytes(opened.read(8), "little")
            if not 2 <= header_bytes <= min(MAX_HEADER_BYTES, file_bytes - 8):
                raise _corrupt(file, f"a header of {header_bytes} bytes in a file of {file_bytes}")
            header = _parse(file, opened.read(header_bytes))
    except OSError as error:
        raise unreadable(folder / file, error) from error
    if len(header) > MAX_TENSORS:
        raise _corrupt(file, f"{len(header)} tensors")
    data_start = 8 + header_bytes
    tensors = [
        _tensor(file, name, Fields(entry, f"{file}, tensor {name}"), data_start) for name, entry in header.items()
    ]
    check_places(tensors, file, data_start, file_bytes)
    return tensors


def _parse(file: str, text: bytes) -> dict[str, dict[str, object]]:
    try:
        header = json.loads(text, object_pairs_hook=strict_object)
    except (ValueError, RecursionError) as error:
        raise _corrupt(file, f"the header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise _corrupt(file, "the header is not an object")
    header.pop("__metadata__", None)
    for name, entry in header.items():
        if not isinstance(entry, dict):
            raise tensor_corrupt(name, file, "is not described by an object")
    return header


def _tensor(file: str, name: str, entry: Fields, data_start: int) -> StoredTensor:
    storage = entry.text("dtype")
    shape = tuple(entry.list_of(int, "shape"))
    if storage not in OTHER_BYTES:
        check_weights(name, file, storage, shape or (1,))
    nbytes = sized_bytes(name, file, storage, shape)
    offsets = entry.list_of(int, "data_offsets")
    if len(offsets) != 2 or offsets[0] < 0 or offsets[1] - offsets[0] != nbytes:
        raise tensor_corrupt(name, file, f"has the offsets {offsets}, but {list(shape)} {storage} takes {nbytes} bytes")
    return StoredTensor(
        name=name, file=file, storage=storage, shape=shape, offset=data_start + offsets[0], nbytes=nbytes
    )


def _corrupt(file: str, reason: str) -> ModelCorruptError:
    return ModelCorruptError(f"{file} is not a sound safetensors file: {reason}.", remedy=REMEDY)
