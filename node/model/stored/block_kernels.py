"""Stored rows by Triton: products of few rows, which unpack blocks in registers, and unpacking into memory for many.

Imported only where Triton is there and is to compute; with TRITON_INTERPRET=1 a CPU computes the same, slowly. The
numbers are to the bit those of `node.model.stored.numbers`, rounded to the dtype of the rows like there.

Shapes: T rows, I inputs, R rows of the matrix, B bytes of one; within a kernel K columns at a time, G groups of them, S
numbers of a group.
"""

from __future__ import annotations

import functools
from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

from node.model.stored.block_numbers import block_numbers
from node.model.stored.forms import FORMS
from node.model.triton_interpreted import INTERPRETED

SIZES = ("rows", "matrix_rows", "columns", "x_stride", "stored_stride", "out_stride")  # one kernel for all of them
_ROWS = 16  # of a program: what one product of tensor cores takes anyway
_MATRIX_ROWS = 16  # of the matrix for each program
_COLUMNS = 256  # at a time


def multiply_few(storage: str, x_TI: Tensor, stored_RB: Tensor, bias_R: Tensor | None, out_TR: Tensor) -> None:
    """Puts x_TI W_RIᵀ + b_R into `out_TR`, of few rows."""
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
            ROWS=_ROWS,
            HAS_BIAS=bias_R is not None,
            WIDENS=INTERPRETED,
            **constants(storage),
            enable_fp_fusion=False,  # so that a number is to the bit what it is anywhere else
        )


def unpacked(storage: str, stored_RB: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers [R, I] of stored rows."""
    assert stored_RB.stride(1) == 1, "rows lie in one piece"
    form, matrix_rows = FORMS[storage], len(stored_RB)
    columns = stored_RB.shape[1] // form.nbytes * form.numbers
    out_RI = torch.empty((matrix_rows, columns), dtype=dtype, device=stored_RB.device)
    grid = (triton.cdiv(matrix_rows, _MATRIX_ROWS), triton.cdiv(columns, _COLUMNS))
    with torch.cuda.device(stored_RB.device) if stored_RB.is_cuda else nullcontext():
        _unpack[grid](
            stored_RB,
            _listed(storage, stored_RB.device),
            out_RI,
            matrix_rows,
            columns,
            stored_RB.stride(0),
            **constants(storage),
            enable_fp_fusion=False,
        )
    return out_RI


@functools.cache
def _listed(storage: str, device: torch.device) -> Tensor:
    return torch.tensor(FORMS[storage].listed or (0,), dtype=torch.float32, device=device)


@functools.cache
def constants(storage: str) -> dict[str, int | bool | str]:
    """What the kernel is compiled for."""
    form = FORMS[storage]
    low, high = form.low, form.high or form.low
    return {
        "MATRIX_ROWS": _MATRIX_ROWS,
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
    column_K = tl.arange(0, GROUPS * GROUP)
    sum_TR = tl.full((ROWS, MATRIX_ROWS), 0.0, tl.float32)
    for first in range(0, columns, GROUPS * GROUP):
        number_RK = block_numbers(
            stored,
            stored_stride,
            listed,
            row_R,
            matrix_rows,
            first,
            columns,
            MATRIX_ROWS,
            NUMBERS,
            NBYTES,
            GROUP,
            GROUPS,
            LOW,
            LOW_BITS,
            LOW_RUN,
            HAS_HIGH,
            HIGH,
            HIGH_BITS,
            HIGH_RUN,
            ZERO,
            SIGNED,
            LISTED,
            SCALES,
            SCALE,
            HAS_MINIMUM,
            MINIMUM,
            PACKED,
        ).to(x.dtype.element_ty)
        column = first + column_K
        x_TK = tl.load(
            x + row_T[:, None] * x_stride + column[None, :],
            mask=(row_T < rows)[:, None] & (column < columns)[None, :],
            other=0.0,
        )
        if WIDENS:
            x_TK, number_RK = x_TK.to(tl.float32), number_RK.to(tl.float32)
        sum_TR = tl.dot(x_TK, tl.trans(number_RK), sum_TR, input_precision="ieee")
    if HAS_BIAS:
        sum_TR += tl.load(bias + row_R, mask=row_R < matrix_rows, other=0.0).to(tl.float32)[None, :]
    mask_TR = (row_T < rows)[:, None] & (row_R < matrix_rows)[None, :]
    tl.store(out + row_T[:, None] * out_stride + row_R[None, :], sum_TR.to(out.dtype.element_ty), mask=mask_TR)


@triton.jit(do_not_specialize=("matrix_rows", "columns", "stored_stride"))
def _unpack(
    stored,
    listed,
    out,
    matrix_rows,
    columns,
    stored_stride,
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
    """Some rows and columns, each program its own."""
    row_R = tl.program_id(0) * MATRIX_ROWS + tl.arange(0, MATRIX_ROWS)
    first = tl.program_id(1) * (GROUPS * GROUP)
    number_RK = block_numbers(
        stored,
        stored_stride,
        listed,
        row_R,
        matrix_rows,
        first,
        columns,
        MATRIX_ROWS,
        NUMBERS,
        NBYTES,
        GROUP,
        GROUPS,
        LOW,
        LOW_BITS,
        LOW_RUN,
        HAS_HIGH,
        HIGH,
        HIGH_BITS,
        HIGH_RUN,
        ZERO,
        SIGNED,
        LISTED,
        SCALES,
        SCALE,
        HAS_MINIMUM,
        MINIMUM,
        PACKED,
    )
    column_K = first + tl.arange(0, GROUPS * GROUP)
    place_RK = row_R.to(tl.int64)[:, None] * columns + column_K[None, :]
    mask_RK = (row_R < matrix_rows)[:, None] & (column_K < columns)[None, :]
    tl.store(out + place_RK, number_RK.to(out.dtype.element_ty), mask=mask_RK)
