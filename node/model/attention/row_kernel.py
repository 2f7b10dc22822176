"""Attention of one row of each sequence over its pages, by Triton: all rows and heads of a layer in one launch.

Imported only where Triton is there and is to compute; with TRITON_INTERPRET=1 a CPU computes the same. A program
has the query heads of one key-value head of one row, and goes through the positions block by block with a running
maximum, as Dao et al., FlashAttention (2022), do.

Shapes: T rows, P pages of a row, K key-value heads, G query heads of each, D numbers of a query or key, E numbers of a
value, S slots of the pool.
"""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

from layerline.models.spec import AttentionSpec
from node.model.attention.row_pages import RowPages
from node.model.triton_interpreted import INTERPRETED

_LEAST_SIDE = 16  # of a product of tensor cores
_POSITIONS = 64  # at a time


def attend_rows(
    spec: AttentionSpec, q_TKGD: Tensor, k_KSD: Tensor, v_KSE: Tensor, sinks_KG: Tensor | None, pages: RowPages
) -> Tensor:
    """What each row reads of its sequence [T, K, G, E], in the dtype of q."""
    rows, kv_heads, group, head_dim = q_TKGD.shape
    out_TKGE = q_TKGD.new_empty(rows, kv_heads, group, spec.value_dim)
    q_TKGD = q_TKGD.contiguous()
    with torch.cuda.device(q_TKGD.device) if q_TKGD.is_cuda else nullcontext():
        _attend[(rows, kv_heads)](
            q_TKGD,
            k_KSD,
            v_KSE,
            q_TKGD if sinks_KG is None else sinks_KG,  # never read where there is none
            pages.pages_TP,
            pages.first_positions_T,
            pages.end_positions_T,
            out_TKGE,
            pages.pages_TP.stride(0),
            k_KSD.shape[1],
            spec.score_scale,
            spec.soft_cap,
            PAGE_TOKENS=pages.page_tokens,
            WINDOW=spec.window_tokens,
            CHUNK=spec.chunk_tokens,
            HAS_CAP=bool(spec.soft_cap),
            HAS_SINKS=sinks_KG is not None,
            WIDENS=INTERPRETED,
            GROUP=group,
            GROUP_SIDE=_side(group),
            KEY=head_dim,
            KEY_SIDE=_side(head_dim),
            VALUE=spec.value_dim,
            VALUE_SIDE=_side(spec.value_dim),
            POSITIONS=_POSITIONS,
        )
    return out_TKGE


def _side(numbers: int) -> int:
    """The side of a product that has room for so many."""
    return max(_LEAST_SIDE, 1 << math.ceil(math.log2(numbers)))


@triton.jit(do_not_specialize=("pages_stride", "slots"))
def _attend(
    q,
    k,
    v,
    sinks,
    pages,
    first_positions,
    end_positions,
    out,
    pages_stride,
    slots,
    scale,
    soft_cap,
    PAGE_TOKENS: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    WIDENS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_SIDE: tl.constexpr,
    KEY: tl.constexpr,
    KEY_SIDE: tl.constexpr,
    VALUE: tl.constexpr,
    VALUE_SIDE: tl.constexpr,
    POSITIONS: tl.constexpr,
):
    """The heads of one key-value head, of one row."""
    row, kv_head = tl.program_id(0), tl.program_id(1)
    first_position, end = tl.load(first_positions + row), tl.load(end_positions + row)
    begin = first_position
    if WINDOW > 0:
        begin = tl.maximum(begin, end - WINDOW)
    if CHUNK > 0:
        begin = tl.maximum(begin, (end - 1) // CHUNK * CHUNK)
    head_G, key_D, value_E = tl.arange(0, GROUP_SIDE), tl.arange(0, KEY_SIDE), tl.arange(0, VALUE_SIDE)
    first_head = (row * tl.num_programs(1) + kv_head) * GROUP
    mask_GD = (head_G < GROUP)[:, None] & (key_D < KEY)[None, :]
    q_GD = tl.load(q + (first_head + head_G)[:, None] * KEY + key_D[None, :], mask=mask_GD, other=0.0)
    most_G = tl.full((GROUP_SIDE,), -1e30, tl.float32)
    total_G = tl.full((GROUP_SIDE,), 0.0, tl.float32)
    read_GE = tl.full((GROUP_SIDE, VALUE_SIDE), 0.0, tl.float32)
    for block in range(begin, end, POSITIONS):
        position_S = block + tl.arange(0, POSITIONS)
        seen_S = position_S < end
        place_S = position_S - first_position
        page_S = tl.load(pages + row * pages_stride + place_S // PAGE_TOKENS, mask=seen_S, other=0)
        slot_S = kv_head.to(tl.int64) * slots + page_S.to(tl.int64) * PAGE_TOKENS + place_S % PAGE_TOKENS
        mask_SD = seen_S[:, None] & (key_D < KEY)[None, :]
        k_SD = tl.load(k + slot_S[:, None] * KEY + key_D[None, :], mask=mask_SD, other=0.0).to(q_GD.dtype)
        mask_SE = seen_S[:, None] & (value_E < VALUE)[None, :]
        v_SE = tl.load(v + slot_S[:, None] * VALUE + value_E[None, :], mask=mask_SE, other=0.0).to(q_GD.dtype)
        if WIDENS:
            score_GS = tl.dot(q_GD.to(tl.float32), tl.trans(k_SD.to(tl.float32)), input_precision="ieee") * scale
        else:
            score_GS = tl.dot(q_GD, tl.trans(k_SD), input_precision="ieee") * scale
        if HAS_CAP:
            score_GS = soft_cap * (1.0 - 2.0 / (tl.exp(2.0 * score_GS / soft_cap) + 1.0))  # its tanh
        score_GS = tl.where(seen_S[None, :], score_GS, float("-inf"))
        new_most_G = tl.maximum(most_G, tl.max(score_GS, axis=1))
        weight_GS = tl.exp(score_GS - new_most_G[:, None])
        kept_G = tl.exp(most_G - new_most_G)
        total_G = total_G * kept_G + tl.sum(weight_GS, axis=1)
        weight_GS = weight_GS.to(v_SE.dtype)
        if WIDENS:
            weight_GS, v_SE = weight_GS.to(tl.float32), v_SE.to(tl.float32)
        read_GE = tl.dot(weight_GS, v_SE, read_GE * kept_G[:, None], input_precision="ieee")
        most_G = new_most_G
    if HAS_SINKS:
        sink_G = tl.load(sinks + kv_head * GROUP + head_G, mask=head_G < GROUP, other=0.0)
        new_most_G = tl.maximum(most_G, sink_G)
        kept_G = tl.exp(most_G - new_most_G)
        total_G = total_G * kept_G + tl.exp(sink_G - new_most_G)
        read_GE = read_GE * kept_G[:, None]
    mask_GE = (head_G < GROUP)[:, None] & (value_E < VALUE)[None, :]
    read_GE = read_GE / total_G[:, None]
    tl.store(
        out + (first_head + head_G)[:, None] * VALUE + value_E[None, :], read_GE.to(out.dtype.element_ty), mask=mask_GE
    )
