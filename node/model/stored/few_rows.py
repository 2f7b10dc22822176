"""Products of few rows with stored rows by Triton, which unpacks blocks in registers, so that a byte is read once.

Imported only where Triton is there and is to compute; with TRITON_INTERPRET=1 a CPU computes the same, slowly. The
numbers are those of `node.model.stored.numbers`, rounded to the dtype of the rows like there.

Shapes: T rows, I inputs, R rows of the matrix, B bytes of one; within the kernel K columns at a time, G groups of them.
"""

from __future__ import annotations

import functools
import os
from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

from node.model.stored.forms import FORMS

INTERPRETED = (
    os.environ.get("TRITON_INTERPRET") == "1"
)  # the interpreter has no products of bfloat16; float32 ones are the same
SIZES = ("rows", "matrix_rows", "columns", "x_stride", "stored_stride", "out_stride")  # one kernel for all of them
_ROWS = 16  # of a program: what one product of tensor cores takes anyway
_MATRIX_ROWS = 16  # of the matrix for each program
_COLUMNS = 256  # at a time


def multiply_few(storage: str, x_TI: Tensor, stored_RB: Tensor, bias_R: Tensor | None, out_TR: Tensor) -> None:
    """Puts x_TI W_RIᵀ + b_R into `out_TR`: a `FewRows`."""
    rows, columns = x_TI.shape
    assert rows <= _ROWS, "so many are not few"
    assert x_TI.stride(1) == stored_RB.stride(1) == out_TR.stride(1) == 1, "rows lie in one piece"
    matrix_rows = len(stored_RB)
    with torch.cuda.device(x_TI.device) if x_TI.is_cuda else nullcontext():
        _multiply[(triton.cdiv(matrix_rows, _MATRIX_ROWS),)](
            x_TI,
            stored_RB,
            out_TR if bias_R is None else bias_R,  # never read where there is none
            _listed(storage, x_TI.device),
            out_TR,
            rows,
            matrix_rows,
            columns,
            x_TI.stride(0),
            stored_RB.stride(0),
            out_TR.stride(0),
            HAS_BIAS=bias_R is not None,
            **constants(storage),
            enable_fp_fusion=False,  # so that a number is to the bit what it is anywhere else
        )


@functools.cache
def _listed(storage: str, device: torch.device) -> Tensor:
    return torch.tensor(FORMS[storage].listed or (0,), dtype=torch.float32, device=device)


@functools.cache
def constants(storage: str) -> dict[str, int | bool | str]:
    """What the kernel is compiled for."""
    form = FORMS[storage]
    low, high = form.low, form.high or form.low
    return {
        "ROWS": _ROWS,
        "MATRIX_ROWS": _MATRIX_ROWS,
        "WIDENS": INTERPRETED,
        "NUMBERS": form.numbers,
        "NBYTES": form.nbytes,
        "GROUP": form.group_numbers,
        "GROUPS": _COLUMNS // form.group_numbers,
        "LOW": low.offset,
        "LOW_BITS": low.bits,
        "LOW_RUN": low.run,
        "HAS_HIGH": form.high is not None,
        "HIGH": high.offset,
        "HIGH_BITS": high.bits,
        "HIGH_RUN": high.run,
        "ZERO": form.zero,
        "SIGNED": form.signed,
        "LISTED": bool(form.listed),
        "SCALES": form.scales,
        "SCALE": form.scale,
        "HAS_MINIMUM": form.minimum is not None,
        "MINIMUM": form.minimum or 0,
        "PACKED": form.packed,
    }


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


@triton.jit(do_not_specialize=SIZES)
def _multiply(
    x,
    stored,
    bias,
    listed,
    out,
    rows,
    matrix_rows,
    columns,
    x_stride,
    stored_stride,
    out_stride,
    ROWS: tl.constexpr,
    MATRIX_ROWS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    WIDENS: tl.constexpr,
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
    """MATRIX_ROWS outputs of all rows."""
    row_T = tl.arange(0, ROWS)
    row_R = tl.program_id(0) * MATRIX_ROWS + tl.arange(0, MATRIX_ROWS)
    group_G, number_S, column_K = tl.arange(0, GROUPS), tl.arange(0, GROUP), tl.arange(0, GROUPS * GROUP)
    begin_R = stored + row_R.to(tl.int64) * stored_stride
    sum_TR = tl.full((ROWS, MATRIX_ROWS), 0.0, tl.float32)
    for first in range(0, columns, GROUPS * GROUP):
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

        column = first + column_K
        x_TK = tl.load(
            x + row_T[:, None] * x_stride + column[None, :],
            mask=(row_T < rows)[:, None] & (column < columns)[None, :],
            other=0.0,
        )
        number_RK = tl.reshape(number_RGS, (MATRIX_ROWS, GROUPS * GROUP)).to(x_TK.dtype)
        if WIDENS:
            x_TK, number_RK = x_TK.to(tl.float32), number_RK.to(tl.float32)
        sum_TR = tl.dot(x_TK, tl.trans(number_RK), sum_TR, input_precision="ieee")
    if HAS_BIAS:
        sum_TR += tl.load(bias + row_R, mask=row_R < matrix_rows, other=0.0).to(tl.float32)[None, :]
    mask_TR = (row_T < rows)[:, None] & (row_R < matrix_rows)[None, :]
    tl.store(out + row_T[:, None] * out_stride + row_R[None, :], sum_TR.to(out.dtype.element_ty), mask=mask_TR)
