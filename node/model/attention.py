"""Attention of the rows of a step over pages: one pass per run of neighbouring slots, on views of the pool.

Owns the passes and how they are merged. A pass is behind `AttentionPass`: there is one on torch's flash kernel for
CPUs and one in plain operations for any device. No pass copies keys or values, or repeats them for grouped heads.

Shapes: T rows, K key-value heads, G query heads of each, D numbers per head, S slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from node.model.kv_pool import LayerPool
from node.model.step import SpanReads, Step

SCORES_BYTES = 8 << 20  # of float32 scores in one block of rows; a single row may need more
AttentionPass = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]
"""(q_KTGD, k_KSD, v_KSD, causal) → (out_KTGD, float32 log-sum-exp of each row's scores, KTG)."""


def attention_pass(device: torch.device) -> AttentionPass:
    """The fastest pass for `device`."""
    return flash_pass if device.type == "cpu" else plain_pass


def attend(attend_pass: AttentionPass, q_TKGD: Tensor, pool: LayerPool, step: Step) -> Tensor:
    """What each row of the step reads from its sequence, [T, K, G, D] in the dtype of q."""
    q_KTGD = q_TKGD.transpose(0, 1)
    if len(step.spans) == 1:
        return _attend_span(attend_pass, q_KTGD, pool, step.spans[0]).transpose(0, 1)
    spans = [_attend_span(attend_pass, q_KTGD[:, span.rows], pool, span) for span in step.spans]
    return torch.cat(spans, dim=1).transpose(0, 1)


def _attend_span(attend_pass: AttentionPass, q_KTGD: Tensor, pool: LayerPool, span: SpanReads) -> Tensor:
    if len(span.pieces) == 1:
        piece = span.pieces[0]
        return attend_pass(q_KTGD, *pool.run(piece.first_slot, piece.slots), piece.causal)[0]
    out_KTGD = torch.zeros_like(q_KTGD, dtype=torch.float32)
    lse_KTG = torch.full(q_KTGD.shape[:3], -math.inf, device=q_KTGD.device)
    for piece in span.pieces:
        keys_values = pool.run(piece.first_slot, piece.slots)
        part = attend_pass(q_KTGD[:, piece.rows], *keys_values, piece.causal)
        _merge_(out_KTGD[:, piece.rows], lse_KTG[:, piece.rows], *part)
    return out_KTGD.to(q_KTGD.dtype)


def _merge_(out_KTGD: Tensor, lse_KTG: Tensor, part_KTGD: Tensor, part_lse_KTG: Tensor) -> None:
    """Takes a further pass into `out` and `lse`, each weighed by its share of the softmax's denominator."""
    share_KTG = torch.sigmoid(part_lse_KTG - lse_KTG)
    out_KTGD.lerp_(part_KTGD.float(), share_KTG[..., None])
    torch.logaddexp(lse_KTG, part_lse_KTG, out=lse_KTG)


def flash_pass(q_KTGD: Tensor, k_KSD: Tensor, v_KSD: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """A pass on torch's flash kernel for CPUs, which is what scaled_dot_product_attention uses there.

    Without a mask the heads of a group are further rows of their key-value head, so that keys are read once.
    A causal mask needs them apart; then they see the same keys by a stride of zero.
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    kv_heads, rows, group, head_dim = q_KTGD.shape
    if causal:
        shape = (kv_heads, group, *k_KSD.shape[1:])
        k_KGSD, v_KGSD = k_KSD[:, None].expand(shape), v_KSD[:, None].expand(shape)
        out_KGTD, lse_KGT = flash(q_KTGD.transpose(1, 2), k_KGSD, v_KGSD, 0.0, True)
        return out_KGTD.transpose(1, 2), lse_KGT.transpose(1, 2)
    q_1KND = q_KTGD.reshape(1, kv_heads, rows * group, head_dim)
    out_1KND, lse_1KN = flash(q_1KND, k_KSD[None], v_KSD[None])
    return out_1KND.view(q_KTGD.shape), lse_1KN.view(q_KTGD.shape[:3])


def plain_pass(q_KTGD: Tensor, k_KSD: Tensor, v_KSD: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """A pass in plain operations, the rows in blocks so that the scores stay small."""
    kv_heads, _, group, _ = q_KTGD.shape
    block_rows = max(1, SCORES_BYTES // (kv_heads * group * k_KSD.shape[1] * 4))
    parts = [
        _plain_block(q_block, k_KSD, v_KSD, block * block_rows if causal else None)
        for block, q_block in enumerate(torch.split(q_KTGD, block_rows, dim=1))
    ]
    outs, lses = zip(*parts, strict=True)
    return torch.cat(outs, dim=1), torch.cat(lses, dim=1)


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
