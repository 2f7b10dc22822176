"""What a method of quantisation is here: which pieces it has, what they must be, and how they become rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.grouped import GroupedForm, grouped_form
from layerline.models.grouped_rows import rows_of
from layerline.models.quantised.config import Quantisation
from layerline.models.storage import to_float32
from layerline.models.stored import tensor_corrupt
from layerline.models.tensor_table import StoredTensor

SCALES = ("F16", "BF16", "F32")
INTEGERS = ("I32",)
_BITS = (
    dict.fromkeys(("I8", "U8", "F8_E4M3", "F8_E5M2"), "u1")
    | dict.fromkeys(("F16", "BF16"), "<u2")
    | {"F32": "<u4", "I32": "<u4", "I64": "<i8"}
)  # how a piece is looked at

RowsOf = Callable[[range], NDArray[np.uint8]]


class PieceTensors:
    """The pieces of one matrix as a folder stores them, by role."""

    def __init__(self, name: str, pieces: Mapping[str, StoredTensor]) -> None:
        self.name = name
        self._pieces = pieces

    def __contains__(self, role: str) -> bool:
        return role in self._pieces

    def storage(self, role: str, allowed: tuple[str, ...]) -> str:
        """How a piece is stored, which is one of `allowed`."""
        piece = self._pieces[role]
        if piece.storage not in allowed:
            raise tensor_corrupt(piece.name, piece.file, f"is stored as {piece.storage}, not as {' or '.join(allowed)}")
        return piece.storage

    def sides(self, role: str, *allowed: int) -> tuple[int, ...]:
        """The shape of a piece, which must have one of these numbers of dimensions."""
        piece = self._pieces[role]
        if len(piece.shape) not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise tensor_corrupt(piece.name, piece.file, f"has {len(piece.shape)} dimensions, not {wanted}")
        return piece.shape

    def check_shape(self, role: str, *allowed: tuple[int, ...]) -> None:
        """Raises ModelCorruptError unless a piece, if it is there, has one of these shapes."""
        piece = self._pieces.get(role)
        if piece is None or piece.shape in allowed:
            return
        wanted = " or ".join(str(list(shape)) for shape in allowed)
        reason = f"has the shape {list(piece.shape)}, but what it belongs to asks for {wanted}"
        raise tensor_corrupt(piece.name, piece.file, reason)

    def piece_name(self, role: str) -> str:
        """What a piece that is not there would be called."""
        return f"{self.name.removesuffix('.weight')}.{role}"

    def missing(self, role: str, *wanted: str) -> ModelCorruptError:
        """The error for a matrix that has a piece, but none of the wanted ones."""
        piece = self._pieces[role]
        names = " or ".join(wanted)
        return tensor_corrupt(piece.name, piece.file, f"is one piece of a matrix, of which {names} is missing")

    def form(self, codes: str, quantisation: Quantisation, columns: int, scale: str) -> GroupedForm:
        """The form of such codes in rows of so many columns."""
        ordered = quantisation.ordered and quantisation.group > 0
        form = GroupedForm(codes=codes, group=quantisation.group, scale=scale, ordered=ordered)
        if columns % form.cell:
            reason = f"Matrix {self.name} has {columns} columns in {codes}, which is not a multiple of {form.cell}."
            raise ModelUnsupportedError(reason, remedy="Use another quantisation of the model.")
        return form


class PieceBytes:
    """The bytes of the pieces of one matrix, by role."""

    def __init__(self, tensor: StoredTensor, stored: Mapping[str, NDArray[np.uint8]]) -> None:
        self.shape = tensor.shape[0], tensor.shape[1]
        self.storage = tensor.storage
        self.recipe = tensor.recipe
        self._pieces = {piece.role: piece for piece in tensor.pieces}
        self._stored = stored

    @property
    def form(self) -> GroupedForm:
        """What a matrix with scales of groups is read as."""
        form = grouped_form(self.storage)
        assert form is not None, "such a recipe gives such a form"
        return form

    @property
    def groups(self) -> int:
        """Of a row."""
        return self.form.groups(self.shape[1])

    def __contains__(self, role: str) -> bool:
        return role in self._pieces

    def bits(self, role: str) -> NDArray[Any]:
        """A piece as unsigned numbers of its size."""
        piece = self._pieces[role]
        return self._stored[role].view(_BITS[piece.storage]).reshape(piece.shape)

    def bytes_of_words(self, role: str) -> NDArray[np.uint8]:
        """A piece of words of 32 bits as bytes, the lowest first [..., 4]."""
        return self._stored[role].reshape(*self._pieces[role].shape, 4)

    def scales(self, role: str) -> NDArray[Any]:
        """The bits of a piece of scales, all of which are numbers."""
        if not np.isfinite(self.largest(role)):
            raise self.corrupt(role, "has a scale that is infinite or no number")
        return self.bits(role)

    def largest(self, role: str) -> float:
        """The largest magnitude of the numbers of a piece; infinite or no number if one of them is."""
        piece = self._pieces[role]
        return float(np.abs(to_float32(piece.storage, self._stored[role], piece.shape)).max())

    def order(self, role: str) -> NDArray[np.int32] | None:
        """The columns in the order of their groups, as a piece says of each; None if that is the order they have."""
        form, columns = self.form, self.shape[1]
        if not form.group:
            return None
        group_of = self.bits(role).view(np.int32)
        if group_of.min() < 0 or group_of.max() >= self.groups:
            raise self.corrupt(role, f"names a group out of range: there are {self.groups}")
        order = np.argsort(group_of, kind="stable") if form.ordered else np.arange(columns)
        if not np.array_equal(group_of[order], np.arange(columns) // form.group):
            neighbours = "" if form.ordered else " neighbouring"
            raise self.corrupt(role, f"does not give every group {form.group}{neighbours} columns")
        return order.astype(np.int32) if form.ordered else None

    def corrupt(self, role: str, reason: str) -> ModelCorruptError:
        """The error for a piece that cannot be as it is."""
        piece = self._pieces[role]
        return tensor_corrupt(piece.name, piece.file, reason)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix that can be read: `rows` gives some of its rows [rows, bytes] as they are in its storage.

    `order` tells which column of the matrix each column of the rows is; None: they are in order.
    """

    rows: RowsOf
    order: NDArray[np.int32] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A method. Pieces are called by their roles, and found by the endings of their names.

    The first ending tells that there is a matrix, if its tensor is stored in one of `storages`; empty: in any.
    `described` gives what it is read as, and its shape; `opened` its rows. Both raise ModelCorruptError for pieces that
    cannot be.
    """

    needed: Mapping[str, tuple[str, ...]]
    optional: Mapping[str, tuple[str, ...]]
    described: Callable[[PieceTensors, Quantisation], tuple[str, tuple[int, ...]]]
    opened: Callable[[PieceBytes], Matrix]
    storages: tuple[str, ...] = ()


def grouped_matrix(
    pieces: PieceBytes,
    codes_of: RowsOf,
    scales: NDArray[Any],
    zeros: NDArray[np.uint8] | None = None,
    order: NDArray[np.int32] | None = None,
) -> Matrix:
    """The matrix of codes [rows, columns], in the model's order, with scales and zeros [rows, groups] of all rows."""
    form = pieces.form

    def rows(wanted: range) -> NDArray[np.uint8]:
        codes, own = codes_of(wanted), slice(wanted.start, wanted.stop)
        if order is not None:
            codes = codes[:, order]
        return rows_of(form, codes, scales[own], None if zeros is None else zeros[own])

    return Matrix(rows, order)


def codes_of_bytes(stored: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Codes [..., columns] of bytes, of those of four bits the lower first."""
    if bits == 8:
        return stored
    return np.stack([stored & 15, stored >> 4], axis=-1).reshape(*stored.shape[:-1], -1)
