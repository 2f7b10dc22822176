"""Attention of the rows of a step over pages: one pass per run of neighbouring slots, on views of the pool.

Owns the passes and how they are merged. A pass is behind `AttentionPass`: there is one on torch's flash kernel for
CPUs and one in plain operations for any device. No pass copies the keys and values of a context, or
repeats them for grouped heads.

Shapes: T rows, K key-value heads, G query heads of each, D numbers per head, S slots, N rows of all passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from node.model.kv_pool import LayerPool
from node.model.step import Group

SCORES_BYTES = 8 << 20  # of float32 scores in one block of rows; a single row may need more
LEAST_SCORE = -1e30  # less than any, but finite, so that a row without parts has no difference of infinities
SMALLEST = 1e-30
AttentionPass = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]
"""(q_TKGD, k_1KSD, v_1KSD, causal) → (out_TKGD, float32 log-sum-exp of each row's scores, TKG)."""


def attention_pass(device: torch.device) -> AttentionPass:
    """The fastest pass for `device`."""
    return flash_pass if device.type == "cpu" else plain_pass


def attend(attend_pass: AttentionPass, q_TKGD: Tensor, pool: LayerPool, groups: Sequence[Group]) -> Tensor:
    """What each row of a step reads from its sequence, [T, K, G, D] in the dtype of q."""
    parts: list[tuple[Tensor, Tensor]] = []
    for group in groups:
        for piece in group.pieces:
            q_piece = q_TKGD.narrow(0, piece.first_row, piece.rows)
            keys_values = pool.run(piece.first_slot, piece.slots)
            if piece.sees == "ahead":
                parts.append(_ahead(attend_pass, q_piece, *keys_values))
            else:
                parts.append(attend_pass(q_piece, *keys_values, piece.sees == "back"))
        if group.rows_N is None:
            return torch.cat([out_TKGD for out_TKGD, _ in parts])
        parts = [_merged(q_TKGD.shape, parts, group.rows_N)]
    return parts[0][0].to(q_TKGD.dtype)


def _ahead(attend_pass: AttentionPass, q_TKGD: Tensor, k_1KSD: Tensor, v_1KSD: Tensor) -> tuple[Tensor, Tensor]:
    """A causal pass the other way round. Its slots are few, as many as rows, so that a copy is no matter."""
    out_TKGD, lse_TKG = attend_pass(q_TKGD.flip(0), k_1KSD.flip(2), v_1KSD.flip(2), True)
    return out_TKGD.flip(0), lse_TKG.flip(0)


def _merged(shape: torch.Size, parts: Sequence[tuple[Tensor, Tensor]], rows_N: Tensor) -> tuple[Tensor, Tensor]:
    """One float32 part [T, K, G, D] of several, each row weighed by its share of the softmax's denominator.

    A row that no part has is zero, and its log-sum-exp minus infinity.
    """
    outs, lses = zip(*parts, strict=True)
    lse_NKG = torch.cat(lses)
    rows_NKG = rows_N[:, None, None].expand(lse_NKG.shape)
    most_TKG = lse_NKG.new_full(shape[:3], LEAST_SCORE).scatter_reduce_(0, rows_NKG, lse_NKG, "amax")
    weight_NKG = (lse_NKG - most_TKG[rows_N]).exp_()
    total_TKG = torch.zeros_like(most_TKG).index_add_(0, rows_N, weight_NKG)
    out_TKGD = total_TKG.new_zeros(shape).index_add_(0, rows_N, torch.cat(outs) * weight_NKG[..., None])
    return out_TKGD.div_(total_TKG.clamp_min(SMALLEST)[..., None]), most_TKG + total_TKG.log()


def flash_pass(q_TKGD: Tensor, k_1KSD: Tensor, v_1KSD: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """A pass on torch's flash kernel for CPUs, which is what scaled_dot_product_attention uses there.

    Without a mask the heads of a group are further rows of their key-value head, so that keys are read once.
    A causal mask needs them apart; then they see the same keys by a stride of zero.
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    rows, kv_heads, group, head_dim = q_TKGD.shape
    if causal:
        shape = (kv_heads, group, *k_1KSD.shape[2:])
        k_KGSD, v_KGSD = k_1KSD[0][:, None].expand(shape), v_1KSD[0][:, None].expand(shape)
        out_KGTD, lse_KGT = flash(q_TKGD.permute(1, 2, 0, 3), k_KGSD, v_KGSD, 0.0, True)
        return out_KGTD.permute(2, 0, 1, 3), lse_KGT.permute(2, 0, 1)
    if rows == 1:
        one: tuple[Tensor, Tensor] = flash(q_TKGD, k_1KSD, v_1KSD)
        return one
    q_1KND = q_TKGD.transpose(0, 1).reshape(1, kv_heads, rows * group, head_dim)
    out_1KND, lse_1KN = flash(q_1KND, k_1KSD, v_1KSD)
    out_KTGD, lse_KTG = out_1KND.view(kv_heads, rows, group, head_dim), lse_1KN.view(kv_heads, rows, group)
    return out_KTGD.transpose(0, 1), lse_KTG.transpose(0, 1)


def plain_pass(q_TKGD: Tensor, k_1KSD: Tensor, v_1KSD: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """A pass in plain operations, the rows in blocks so that the scores stay small."""
    _, kv_heads, group, _ = q_TKGD.shape
    block_rows = max(1, SCORES_BYTES // (kv_heads * group * k_1KSD.shape[2] * 4))
    parts = [
        _plain_block(q_block, k_1KSD[0], v_1KSD[0], block * block_rows if causal else None)
        for block, q_block in enumerate(torch.split(q_TKGD.transpose(0, 1), block_rows, dim=1))
    ]
    outs, lses = zip(*parts, strict=True)
    return torch.cat(outs, dim=1).transpose(0, 1), torch.cat(lses, dim=1).transpose(0, 1)


def _plain_block(q_KTGD: Tensor, k_KSD: Tensor, v_KSD: Tensor, first_row: int | None) -> tuple[Tensor, Tensor]:
    """`first_row`: row i sees slots 0..first_row + i; None: all of them."""
    kv_heads, rows, group, head_dim = q_KTGD.shape
    q_KND = q_KTGD.reshape(kv_heads, rows * group, head_dim) * head_dim**-0.5
    scores_KTGS = (q_KND @ k_KSD.transpose(1, 2)).float().view(kv_heads, rows, group, -1)
    if first_row is not None:
        slots_S = torch.arange(k_KSD.shape[1], device=q_KTGD.device)
        last_T = torch.arange(first_row, first_row + rows, device=q_KTGD.device)
        scores_KTGS.masked_fill_((slots_S > last_T[:, None])[None, :, None], -math.inf)
    lse_KTG = scores_KTGS.logsumexp(dim=-1)
    weights_KTGS = scores_KTGS.sub_(lse_KTG[..., None]).exp_().to(q_KTGD.dtype)
    return (weights_KTGS.flatten(1, 2) @ v_KSD).view(q_KTGD.shape), lse_KTG
