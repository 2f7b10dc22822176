"""Rows whose scales serve groups of columns: made of codes and scales, taken apart by columns, and as numbers.

How a row lies is said in `grouped`. Codes are [rows, columns], scales and zeros [rows, groups], rows [rows, bytes].
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerline.models.grouped import CELL_COLUMNS, SCALE_BYTES, GroupedForm

SIGN = np.uint8(0x80)
_MANTISSA_BITS = {"F8_E4M3": 3, "F8_E5M2": 2}


def rows_of(
    form: GroupedForm, codes: NDArray[np.uint8], scales: NDArray[Any], zeros: NDArray[np.uint8] | None
) -> NDArray[np.uint8]:
    """Rows of codes, scales and, of integers, zeros; None: the usual one."""
    parts = [np.ascontiguousarray(scales).view(np.uint8)]
    if form.has_zeros:
        parts.append(np.full(scales.shape, form.zero, np.uint8) if zeros is None else zeros)
    return np.concatenate([*parts, _packed(form, codes)], axis=1)


def part_of(form: GroupedForm, rows: NDArray[np.uint8], columns: range) -> tuple[NDArray[np.uint8], range]:
    """A copy of what of the rows holds `columns`, again as rows; and which of their columns those are."""
    count = form.columns(rows.shape[1])
    unit = math.lcm(form.group or 1, form.cell)
    first = columns.start // unit * unit
    end = min(count, -(-columns.stop // form.cell) * form.cell)
    own = range(first // form.group, form.groups(end)) if form.group else range(1)
    scales, zeros, codes = _parts(form, rows)
    size = SCALE_BYTES[form.scale]
    parts = [
        scales[:, own.start * size : own.stop * size],
        zeros[:, own.start : own.stop],
        codes[:, first * form.bits // 8 : end * form.bits // 8],
    ]
    return np.concatenate(parts, axis=1), range(columns.start - first, columns.stop - first)


def numbers_of(form: GroupedForm, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The numbers [rows, columns] of rows, each rounded once."""
    columns = form.columns(rows.shape[1])
    scales, zeros, codes = _parts(form, rows)
    factors = _floats(form.scale, np.ascontiguousarray(scales))
    if form.has_zeros:
        numbers = _unpacked(form, codes).astype(np.float32)
        numbers -= _of_columns(form, zeros.astype(np.float32), columns)
    else:
        numbers = numbers_of_codes(form.codes)[codes]
    numbers *= _of_columns(form, factors, columns)
    return numbers


@functools.cache
def numbers_of_codes(codes: str) -> NDArray[np.float32]:
    """What each of the 256 codes of a form without zeros stands for.

    E4M3 has no infinity, and of each sign one code that is no number.
    """
    mantissa_bits = _MANTISSA_BITS[codes]
    code = np.arange(256)
    exponent, mantissa = (code & 127) >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    significand = np.where(exponent > 0, mantissa + (1 << mantissa_bits), mantissa)
    bias = (1 << (6 - mantissa_bits)) - 1
    numbers = np.ldexp(significand.astype(np.float64), np.maximum(exponent, 1) - bias - mantissa_bits)
    last = exponent == exponent.max()
    if codes == "F8_E4M3":
        last &= mantissa == mantissa.max()
    numbers[last] = np.where((mantissa[last] == 0) & (codes == "F8_E5M2"), np.inf, np.nan)
    numbers[128:] *= -1
    table: NDArray[np.float32] = numbers.astype(np.float32)
    return table


def not_numbers(codes: str) -> NDArray[np.bool_]:
    """Of each of the 256 codes of a form without zeros whether it stands for no finite number."""
    return ~np.isfinite(numbers_of_codes(codes))


def _parts(
    form: GroupedForm, rows: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """Scales, zeros (none of floating-point codes) and codes, as bytes of each row."""
    groups = form.groups(form.columns(rows.shape[1]))
    scales, zeros = groups * SCALE_BYTES[form.scale], groups * form.group_bytes
    return rows[:, :scales], rows[:, scales:zeros], rows[:, zeros:]


def _of_columns(form: GroupedForm, own: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    """What each group has, for each of its columns."""
    return np.repeat(own, form.group, axis=1)[:, :columns] if form.group else own


def _packed(form: GroupedForm, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if not form.has_zeros:
        return codes
    assert codes.shape[1] % form.cell == 0, "whole cells"
    if form.bits == 8:
        return codes ^ SIGN
    halves = codes.reshape(len(codes), -1, 2, CELL_COLUMNS // 2)
    packed: NDArray[np.uint8] = halves[:, :, 0] | halves[:, :, 1] << np.uint8(4)
    return packed.reshape(len(codes), -1)


def _unpacked(form: GroupedForm, packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if form.bits == 8:
        return packed ^ SIGN
    halves = packed.reshape(len(packed), -1, 1, CELL_COLUMNS // 2)
    return np.concatenate([halves & 15, halves >> 4], axis=2).reshape(len(packed), -1)


def _floats(scale: str, stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    if scale == "BF16":
        return (stored.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return stored.view("<f2" if scale == "F16" else "<f4").astype(np.float32)
