"""Checks of what either container says of its tensors, before anything is understood."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.storage import FLOAT_STORAGES, stored_bytes
from layerline.models.tensor_table import StoredTensor

REMEDY = "Fetch the model anew."
MAX_TENSORS = 1 << 20
MAX_TENSOR_NUMBERS = 1 << 40
OTHER_BYTES = {"I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "I32": 4, "I64": 8}  # of what pieces consist of


def tensor_corrupt(name: str, file: str, reason: str) -> ModelCorruptError:
    """The error for a tensor that cannot be as it is said to be."""
    return ModelCorruptError(f"Tensor {name} of {file} {reason}.", remedy=REMEDY)


def check_weights(name: str, file: str, storage: str, shape: tuple[int, ...]) -> None:
    """Raises a ModelError unless a tensor is one of weights: floating-point, and with a dimension at least."""
    if storage not in FLOAT_STORAGES:
        if storage.startswith(("I", "U", "BOOL")) and not storage.startswith("IQ"):
            raise tensor_corrupt(name, file, f"is stored as {storage}, which is no type for weights")
        message = f"Tensor {name} of {file} is stored as {storage}, which layerline cannot read."
        raise ModelUnsupportedError(message, remedy="Use another quantisation of the model.")
    if not 1 <= len(shape) <= 4:
        raise tensor_corrupt(name, file, f"has {len(shape)} dimensions")


def float_bytes(name: str, file: str, storage: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of weights, checked to be floating-point, of sane size and of whole blocks."""
    check_weights(name, file, storage, shape)
    return sized_bytes(name, file, storage, shape)


def sized_bytes(name: str, file: str, storage: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor, checked to be of sane size and of whole blocks."""
    numbers = 1
    for side in shape:
        numbers *= side
        if not 0 < side <= MAX_TENSOR_NUMBERS or numbers > MAX_TENSOR_NUMBERS:
            raise tensor_corrupt(name, file, f"has the impossible shape {list(shape)}")
    if storage in OTHER_BYTES:
        return numbers * OTHER_BYTES[storage]
    try:
        return stored_bytes(storage, shape or (1,))
    except ValueError as error:
        raise tensor_corrupt(name, file, f"is malformed: {error}") from error


def check_places(tensors: Iterable[StoredTensor], file: str, first_byte: int, file_bytes: int) -> None:
    """Raises ModelCorruptError unless the tensors of one file lie in its data, apart from each other."""
    ordered = sorted(tensors, key=lambda tensor: tensor.offset)
    for tensor in ordered:
        if tensor.offset < first_byte:
            raise tensor_corrupt(tensor.name, file, "begins inside the header")
        if tensor.end > file_bytes:
            reason = f"ends at byte {tensor.end}, but the file has only {file_bytes}: it is truncated"
            raise tensor_corrupt(tensor.name, file, reason)
    for tensor, following in pairwise(ordered):
        if tensor.end > following.offset:
            raise tensor_corrupt(following.name, file, f"overlaps tensor {tensor.name}")
