"""Whether the output of a folder's model is really its embedding, where config.json says so.

transformers 5 ties the two only if the files do not hold another output matrix (`PreTrainedModel.tie_weights`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from layerline.models.layout import EMBEDDING, OUTPUT, by_canonical_names
from layerline.models.spec import ModelSpec
from layerline.models.tensor_table import StoredTensor
from layerline.models.unreadable import open_model_file

READ_BYTES = 4 << 20
NOTE = (
    f"Its config.json ties the output to the embedding, but the files hold another {OUTPUT}: that one is used, as "
    "transformers does."
)


def output_as_stored(
    spec: ModelSpec, stored: Iterable[StoredTensor], folder: Path
) -> tuple[ModelSpec, tuple[str, ...]]:
    """The spec as the files have it, and what is to be said of that."""
    tensors = by_canonical_names(stored)
    if not spec.tied_output or EMBEDDING not in tensors or OUTPUT not in tensors:
        return spec, ()
    if _are_equal(tensors[EMBEDDING], tensors[OUTPUT], folder):
        return spec, ()
    return replace(spec, tied_output=False), (NOTE,)


def _are_equal(a: StoredTensor, b: StoredTensor, folder: Path) -> bool:
    if (a.storage, a.shape) != (b.storage, b.shape):
        return False
    return all(one == other for one, other in zip(_blocks(a, folder), _blocks(b, folder), strict=True))


def _blocks(tensor: StoredTensor, folder: Path) -> Iterator[bytes]:
    with open_model_file(folder / tensor.file) as file:
        for offset in range(tensor.offset, tensor.end, READ_BYTES):
            file.seek(offset)
            yield file.read(min(READ_BYTES, tensor.end - offset))
