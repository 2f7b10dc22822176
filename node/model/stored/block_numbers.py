"""The numbers of some rows and columns of a stored matrix within a Triton kernel, in every form.

The constants in capitals are those of `forms.Form`; a form has branches of its own only where it differs.

Shapes: R rows of the matrix, K columns, G groups of them, S numbers of a group.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _byte(at, mask):
    return tl.load(at, mask=mask, other=0).to(tl.int32)


@triton.jit
def _signed_byte(at, mask):
    byte = _byte(at, mask)
    return byte - ((byte & 128) << 1)


@triton.jit
def _half(at, mask):
    bits = _byte(at, mask) | (_byte(at + 1, mask) << 8)
    return bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _field(block, number, mask, OFFSET: tl.constexpr, BITS: tl.constexpr, RUN: tl.constexpr):
    """The integer of a number of a block, as `forms.Fields` has it."""
    numbers_of_run: tl.constexpr = RUN * 8 // BITS
    byte = _byte(block + OFFSET + number // numbers_of_run * RUN + number % RUN, mask)
    return (byte >> (number % numbers_of_run // RUN * BITS)) & ((1 << BITS) - 1)


@triton.jit
def _scales(
    block,
    group,
    mask,
    SCALES: tl.constexpr,
    SCALE: tl.constexpr,
    HAS_MINIMUM: tl.constexpr,
    MINIMUM: tl.constexpr,
    PACKED: tl.constexpr,
):
    """The scale and the minimum of a group of a block, as `forms.Scales` tells."""
    if SCALES == "exponent":
        stored = _byte(block + SCALE, mask)
        bits = tl.where(stored < 2, (stored + 1) << 21, (stored - 1) << 23)
        return bits.to(tl.float32, bitcast=True), tl.full(bits.shape, 0.0, tl.float32)
    scale = _half(block + SCALE, mask)
    minimum = tl.full(scale.shape, 0.0, tl.float32)
    if HAS_MINIMUM:
        minimum = _half(block + MINIMUM, mask)
    if SCALES == "block":
        minimum = -minimum
    if SCALES == "nibbles":
        packed = _byte(block + PACKED + group, mask)
        scale *= (packed & 15).to(tl.float32)
        minimum *= (packed >> 4).to(tl.float32)
    if SCALES == "eight":
        place = block + PACKED + group % 4
        first, second, third = _byte(place, mask), _byte(place + 4, mask), _byte(place + 8, mask)
        scale *= tl.where(group < 4, first & 63, (third & 15) | ((first >> 2) & 48)).to(tl.float32)
        minimum *= tl.where(group < 4, second & 63, (third >> 4) | ((second >> 2) & 48)).to(tl.float32)
    if SCALES == "bytes":
        scale *= _signed_byte(block + PACKED + group, mask).to(tl.float32)
    if SCALES == "sixteen":
        low, high = _field(block, group, mask, PACKED, 4, 8), _field(block, group, mask, PACKED + 8, 2, 4)
        scale *= ((low | (high << 4)) - 32).to(tl.float32)
    if SCALES == "split":
        low, high = _field(block, group, mask, PACKED + 2, 4, 1), _field(block, group, mask, PACKED, 2, 1)
        scale *= ((low | (high << 4)) - 32).to(tl.float32)
    return scale, minimum


@triton.jit
def block_numbers(
    stored,
    stored_stride,
    listed,
    row_R,
    matrix_rows,
    first,
    columns,
    MATRIX_ROWS: tl.constexpr,
    NUMBERS: tl.constexpr,
    NBYTES: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    LOW: tl.constexpr,
    LOW_BITS: tl.constexpr,
    LOW_RUN: tl.constexpr,
    HAS_HIGH: tl.constexpr,
    HIGH: tl.constexpr,
    HIGH_BITS: tl.constexpr,
    HIGH_RUN: tl.constexpr,
    ZERO: tl.constexpr,
    SIGNED: tl.constexpr,
    LISTED: tl.constexpr,
    SCALES: tl.constexpr,
    SCALE: tl.constexpr,
    HAS_MINIMUM: tl.constexpr,
    MINIMUM: tl.constexpr,
    PACKED: tl.constexpr,
):
    """The numbers [R, K] of those rows from column `first` on, in float32; zero behind the last row and column."""
    group_G, number_S = tl.arange(0, GROUPS), tl.arange(0, GROUP)
    begin_R = stored + row_R.to(tl.int64) * stored_stride
    column_G = first + group_G * GROUP
    block_RG = begin_R[:, None] + (column_G // NUMBERS * NBYTES)[None, :]
    mask_RG = (row_R < matrix_rows)[:, None] & (column_G < columns)[None, :]
    in_block_G = column_G % NUMBERS
    group_RG = (in_block_G // GROUP)[None, :] + tl.full((MATRIX_ROWS, GROUPS), 0, tl.int32)
    scale_RG, minimum_RG = _scales(block_RG, group_RG, mask_RG, SCALES, SCALE, HAS_MINIMUM, MINIMUM, PACKED)

    block_RGS, mask_RGS = block_RG[:, :, None], mask_RG[:, :, None]
    number_1GS = (in_block_G[:, None] + number_S[None, :])[None, :, :]
    if SIGNED:
        step_RGS = _signed_byte(block_RGS + LOW + number_1GS, mask_RGS)
    else:
        step_RGS = _field(block_RGS, number_1GS, mask_RGS, LOW, LOW_BITS, LOW_RUN)
    if HAS_HIGH:
        step_RGS |= _field(block_RGS, number_1GS, mask_RGS, HIGH, HIGH_BITS, HIGH_RUN) << LOW_BITS
    steps_RGS = tl.load(listed + step_RGS) if LISTED else (step_RGS - ZERO).to(tl.float32)
    number_RGS = scale_RG[:, :, None] * steps_RGS - minimum_RG[:, :, None]
    return tl.reshape(number_RGS, (MATRIX_ROWS, GROUPS * GROUP))
