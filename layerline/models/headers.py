"""Everything about a model that its headers say, whichever container holds it: a card before the hashes."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from layerline.errors import ModelCorruptError, ModelNotFoundError, ModelUnsupportedError
from layerline.models.card import TokenizerCard
from layerline.models.config_fields import ConfigFields
from layerline.models.fields import REMEDY, Fields
from layerline.models.gguf_fields import GgufModel
from layerline.models.gguf_parts import read_whole_gguf
from layerline.models.gguf_rope import RopeTensors
from layerline.models.gguf_tokenizer import tokenizer_from_gguf
from layerline.models.json_file import read_json
from layerline.models.known_families import family_of_config, family_of_gguf, is_known_family
from layerline.models.layout import lay_out
from layerline.models.other_models import refuse_other_models
from layerline.models.quantised.biases import zero_biases
from layerline.models.quantised.config import quantisation_of
from layerline.models.safetensors_file import read_safetensors
from layerline.models.spec import ModelSpec
from layerline.models.stored import tensor_corrupt
from layerline.models.tensor_table import StoredTensor, TensorEntry, stored_places
from layerline.models.text_part import NOTE, is_multimodal, text_config, text_tensors
from layerline.models.tied_output import with_stored_output
from layerline.models.tokenizer_json import tokenizer_from_folder
from layerline.models.unreadable import open_model_file, unreadable

ROPE_FACTORS = {
    "factors": "rope_freqs.weight",
    "short_factors": "rope_factors_short.weight",
    "long_factors": "rope_factors_long.weight",
}
MAX_ROPE_FACTORS = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Headers:
    """A model's description; the hashes in `tensors` are empty. `files` are those whose weights are read, by name."""

    container: str
    spec: ModelSpec
    tensors: tuple[TensorEntry, ...]
    tokenizer: TokenizerCard
    files: Mapping[str, Path]
    notes: tuple[str, ...] = ()
    output_may_be_copy: bool = False  # of the embedding, to which config.json ties it; their hashes will tell


def read_headers(path: Path) -> Headers:
    """What the GGUF file or the folder at `path` says; a ModelError names what is wrong with it."""
    if path.is_dir():
        return _folder_headers(path)
    if not os.path.lexists(path):
        raise ModelNotFoundError(f"There is no model at {path}.")
    try:
        return _gguf_headers(path)
    except OSError as error:
        raise unreadable(path, error) from error


def _gguf_headers(path: Path) -> Headers:
    gguf = read_whole_gguf(path)
    files = {file.name: file for file in gguf.files}
    metadata = Fields(gguf.metadata, path.name)
    architecture = metadata.text("general.architecture")
    family = family_of_gguf(architecture)
    stored = {tensor.name: tensor for tensor in gguf.tensors}
    model = GgufModel(
        metadata=metadata,
        architecture=architecture,
        tensors=frozenset(stored),
        rope_tensors=RopeTensors(
            **{field: _rope_factors(files, stored[name]) for field, name in ROPE_FACTORS.items() if name in stored}
        ),
    )
    assert family.from_gguf is not None, "GGUF has the family by this name"
    with _sizes_of(metadata):
        spec = family.from_gguf(model)
    return Headers(
        container="gguf",
        spec=spec,
        tensors=lay_out(family, spec, "gguf", gguf.tensors),
        tokenizer=tokenizer_from_gguf(metadata),
        files=files,
    )


@contextmanager
def _sizes_of(fields: Fields) -> Iterator[None]:
    """Sizes that no model can have are the fault of the file."""
    try:
        yield
    except ValueError as error:
        raise ModelCorruptError(f"{fields.where}: {error}.", remedy=REMEDY) from error


def _rope_factors(files: Mapping[str, Path], tensor: StoredTensor) -> tuple[float, ...]:
    if tensor.storage != "F32" or len(tensor.shape) != 1 or tensor.shape[0] > MAX_ROPE_FACTORS:
        raise tensor_corrupt(tensor.name, tensor.file, "is not a short list of F32 numbers")
    with open_model_file(files[tensor.file]) as file:
        file.seek(tensor.offset)
        factors = file.read(tensor.nbytes)
    if len(factors) != tensor.nbytes:
        raise tensor_corrupt(tensor.name, tensor.file, "could not be read whole: the file shrank")
    return struct.unpack(f"<{tensor.shape[0]}f", factors)


def _folder_headers(folder: Path) -> Headers:
    values, where = read_json(folder / "config.json"), str(folder / "config.json")
    whole = ConfigFields(values, where)
    refuse_other_models(whole, folder)
    config, multimodal = text_config(whole), is_multimodal(whole)
    model_type = config.text("model_type")
    if whole.raw("auto_map") and not is_known_family(model_type):
        message = f"{where} asks for code that comes with the model (auto_map), which layerline never runs."
        remedy = f"layerline does not know the family {model_type!r} by itself; use a model of one that it knows."
        raise ModelUnsupportedError(message, remedy=remedy)
    family = family_of_config(model_type)
    with _sizes_of(config):
        configured = family.from_config(config)
    stored = read_safetensors(folder, quantisation_of(config))
    if multimodal:
        stored = text_tensors(stored)
    spec = with_stored_output(configured, stored)
    tensors = lay_out(family, spec, "safetensors", stored, zero_biases(folder, stored))
    return Headers(
        container="safetensors",
        spec=spec,
        tensors=tensors,
        tokenizer=tokenizer_from_folder(folder, Fields(values, where)),
        files={file: folder / file for file in sorted({place.file for place in stored_places(tensors)})},
        output_may_be_copy=spec != configured,
        notes=(NOTE,) if multimodal else (),
    )
