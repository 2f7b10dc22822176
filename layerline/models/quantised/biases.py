"""Biases that a quantised folder stores although the model has none: AutoGPTQ gave every matrix one, of zeros."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from layerline.models.quantised.compose import MATRIX
from layerline.models.tensor_table import StoredTensor
from layerline.models.unreadable import open_model_file, unreadable

BIAS = ".bias"
MOST_BYTES = 1 << 20


def zero_biases(folder: Path, stored: Iterable[StoredTensor]) -> frozenset[str]:
    """The names of biases beside matrices in pieces all of whose bytes are zero: without them nothing is another."""
    tensors = {tensor.name: tensor for tensor in stored}
    beside = (name.removesuffix(MATRIX) + BIAS for name, tensor in tensors.items() if tensor.pieces)
    return frozenset(name for name in beside if name in tensors and _is_zero(folder, tensors[name]))


def _is_zero(folder: Path, tensor: StoredTensor) -> bool:
    if tensor.nbytes > MOST_BYTES:
        return False
    try:
        with open_model_file(folder / tensor.file) as file:
            file.seek(tensor.offset)
            return not any(file.read(tensor.nbytes))
    except OSError as error:
        raise unreadable(folder / tensor.file, error) from error
