"""compressed-tensors with integers: packed in words of 32 bits along a row, or a signed byte each.

Packed codes, and packed zeros, are counted from the least; zeros are packed along the rows. A scale is one of the
matrix, of a row, or of a group.

Source: `compressors/quantized_compressors` of compressed-tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerline.models.grouped import GroupedForm
from layerline.models.grouped_rows import SIGN
from layerline.models.quantised.config import Quantisation
from layerline.models.quantised.recipe import (
    INTEGERS,
    SCALES,
    Matrix,
    PieceBytes,
    PieceTensors,
    Recipe,
    codes_of_bytes,
    grouped_matrix,
)

SCALE, ZERO = "weight_scale", "weight_zero_point"


def scale_shapes(rows: int, groups: int) -> tuple[tuple[int, ...], ...]:
    """The shapes that scales of a matrix may have: one of all, of each row, or of each group."""
    if groups > 1:
        return ((rows, groups),)
    return ((), (1,), (1, 1), (rows,), (rows, 1))


def scales_of_rows(pieces: PieceBytes, role: str) -> NDArray[Any]:
    """The bits of the scales of every row's groups."""
    return np.broadcast_to(pieces.scales(role).reshape(-1, pieces.groups), (pieces.shape[0], pieces.groups))


def _described(pieces: PieceTensors, quantisation: Quantisation, rows: int, columns: int) -> GroupedForm:
    form = pieces.form(f"INT{quantisation.bits}", quantisation, columns, pieces.storage(SCALE, SCALES))
    pieces.check_shape(SCALE, *scale_shapes(rows, form.groups(columns)))
    return form


def _check_optional(pieces: PieceTensors, needed: Mapping[str, bool], first: str) -> None:
    """Some are there only if the configuration asks for what they say."""
    for role, is_needed in needed.items():
        if is_needed and role not in pieces:
            raise pieces.missing(first, pieces.piece_name(role))


def _packed(pieces: PieceTensors, quantisation: Quantisation) -> tuple[str, tuple[int, int]]:
    _check_optional(pieces, {ZERO: quantisation.zeros, "weight_g_idx": quantisation.ordered}, "weight_packed")
    in_word = 32 // quantisation.bits
    rows, words = pieces.sides("weight_packed", 2)
    columns = words * in_word
    ordered = "weight_g_idx" in pieces
    own = Quantisation(recipe="packed", bits=quantisation.bits, group=quantisation.group, ordered=ordered)
    form = _described(pieces, own, rows, columns)
    for role in ("weight_packed", ZERO, "weight_g_idx"):
        if role in pieces:
            pieces.storage(role, INTEGERS)
    pieces.storage("weight_shape", ("I32", "I64"))
    pieces.check_shape("weight_shape", (2,))
    pieces.check_shape(ZERO, (-(-rows // in_word), form.groups(columns)))
    pieces.check_shape("weight_g_idx", (columns,))
    return form.storage, (rows, columns)


def _open_packed(pieces: PieceBytes) -> Matrix:
    rows, _ = pieces.shape
    if tuple(pieces.bits("weight_shape").tolist()) != pieces.shape:
        raise pieces.corrupt("weight_shape", f"is not {list(pieces.shape)}, as the matrix has it")
    words = pieces.bytes_of_words("weight_packed").reshape(rows, -1)

    def codes(wanted: range) -> NDArray[np.uint8]:
        return codes_of_bytes(words[wanted.start : wanted.stop], pieces.form.bits)

    zeros = _packed_zeros(pieces) if ZERO in pieces else None
    order = pieces.order("weight_g_idx") if "weight_g_idx" in pieces else None
    return grouped_matrix(pieces, codes, scales_of_rows(pieces, SCALE), zeros, order)


def _packed_zeros(pieces: PieceBytes) -> NDArray[np.uint8]:
    words = pieces.bytes_of_words(ZERO).transpose(1, 0, 2).reshape(pieces.groups, -1)
    return codes_of_bytes(words, pieces.form.bits)[:, : pieces.shape[0]].T


def _bytes(pieces: PieceTensors, quantisation: Quantisation) -> tuple[str, tuple[int, int]]:
    _check_optional(pieces, {ZERO: quantisation.zeros}, "weight")
    rows, columns = pieces.sides("weight", 2)
    form = _described(pieces, quantisation, rows, columns)
    if ZERO in pieces:
        pieces.storage(ZERO, ("I8",))
        pieces.check_shape(ZERO, *scale_shapes(rows, form.groups(columns)))
    return form.storage, (rows, columns)


def _open_bytes(pieces: PieceBytes) -> Matrix:
    signed = pieces.bits("weight")

    def codes(wanted: range) -> NDArray[np.uint8]:
        own: NDArray[np.uint8] = signed[wanted.start : wanted.stop] ^ SIGN
        return own

    zeros = None
    if ZERO in pieces:
        own = pieces.bits(ZERO).reshape(-1, pieces.groups) ^ SIGN
        zeros = np.broadcast_to(own, (pieces.shape[0], pieces.groups))
    return grouped_matrix(pieces, codes, scales_of_rows(pieces, SCALE), zeros)


PACKED = Recipe(
    needed={role: (f".{role}",) for role in ("weight_packed", SCALE, "weight_shape")},
    optional={role: (f".{role}",) for role in (ZERO, "weight_g_idx")},
    described=_packed,
    opened=_open_packed,
)
BYTES = Recipe(
    needed={role: (f".{role}",) for role in ("weight", SCALE)},
    optional={ZERO: (f".{ZERO}",)},
    described=_bytes,
    opened=_open_bytes,
    storages=("I8",),
)
