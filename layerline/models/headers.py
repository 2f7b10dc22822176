"""Everything about a model that its headers say, whichever container holds it: a card before the hashes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from layerline.errors import ModelCorruptError, ModelNotFoundError
from layerline.models.card import TokenizerCard
from layerline.models.families.config_json import spec_from_config
from layerline.models.families.gguf_metadata import spec_from_gguf
from layerline.models.families.registry import family_of_config, family_of_gguf
from layerline.models.fields import REMEDY, Fields
from layerline.models.gguf_file import GgufFile, read_gguf
from layerline.models.gguf_tokenizer import tokenizer_from_gguf
from layerline.models.json_file import read_json
from layerline.models.layout import lay_out
from layerline.models.safetensors_file import read_safetensors
from layerline.models.spec import ModelSpec
from layerline.models.stored import tensor_corrupt
from layerline.models.tensor_table import StoredTensor, TensorEntry, stored_tensors
from layerline.models.tokenizer_json import tokenizer_from_folder

ROPE_FACTORS = "rope_freqs.weight"
MAX_ROPE_FACTORS = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Headers:
    """A model's description; the hashes in `tensors` are empty. `files` are those whose weights are used, by name."""

    container: str
    spec: ModelSpec
    tensors: tuple[TensorEntry, ...]
    tokenizer: TokenizerCard
    files: Mapping[str, Path]


def read_headers(path: Path) -> Headers:
    """What the GGUF file or the folder at `path` says; a ModelError names what is wrong with it."""
    if path.is_dir():
        return _folder_headers(path)
    if not path.is_file():
        raise ModelNotFoundError(f"There is no model at {path}.")
    try:
        return _gguf_headers(path)
    except OSError as error:
        raise ModelCorruptError(f"{path} cannot be read: {error.strerror}.", remedy=REMEDY) from error


def _gguf_headers(path: Path) -> Headers:
    gguf = read_gguf(path)
    metadata = Fields(gguf.metadata, path.name)
    family = family_of_gguf(metadata.text("general.architecture"))
    stored = {tensor.name: tensor for tensor in gguf.tensors}
    factors = _rope_factors(gguf, stored[ROPE_FACTORS]) if ROPE_FACTORS in stored else None
    tied = "output.weight" not in stored
    spec = spec_from_gguf(family, metadata, tied_output=tied, rope_factors=factors)
    return Headers(
        container="gguf",
        spec=spec,
        tensors=lay_out(family, spec, "gguf", gguf.tensors),
        tokenizer=tokenizer_from_gguf(metadata),
        files={path.name: path},
    )


def _rope_factors(gguf: GgufFile, tensor: StoredTensor) -> NDArray[np.float32]:
    if tensor.storage != "F32" or len(tensor.shape) != 1 or tensor.shape[0] > MAX_ROPE_FACTORS:
        raise tensor_corrupt(tensor.name, tensor.file, "is not a short list of F32 numbers")
    with open(gguf.path, "rb") as file:
        file.seek(tensor.offset)
        return np.frombuffer(file.read(tensor.nbytes), "<f4").astype(np.float32)


def _folder_headers(folder: Path) -> Headers:
    config = Fields(read_json(folder / "config.json"), str(folder / "config.json"))
    family = family_of_config(config.text("model_type"))
    spec = spec_from_config(family, config)
    tensors = lay_out(family, spec, "safetensors", read_safetensors(folder))
    return Headers(
        container="safetensors",
        spec=spec,
        tensors=tensors,
        tokenizer=tokenizer_from_folder(folder, config),
        files={file: folder / file for file in sorted({tensor.file for tensor in stored_tensors(tensors)})},
    )
