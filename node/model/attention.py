"""Attention of the rows of a step over pages: one pass per run of neighbouring slots, on views of the pool.

Owns the passes and how they are merged. A pass is behind `AttentionPass`; there is one on torch's flash kernel for CPUs
and one in plain operations for any device. No pass copies keys or values, or repeats them for grouped heads.

Shapes: T rows, K key-value heads, G query heads of each, D numbers per head, S slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from node.model.step import SpanReads, Step

SCORES_BYTES = 8 << 20  # the most that a pass in plain operations holds of scores, in float32, but for one row's
AttentionPass = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]
"""(q_TKGD, k_KSD, v_KSD, causal) → (out_TKGD, float32 log-sum-exp of the scores [T, K, G])."""


def attention_pass(device: torch.device) -> AttentionPass:
    """The fastest pass for `device`."""
    return flash_pass if device.type == "cpu" else plain_pass


def attend(attend_pass: AttentionPass, q_TKGD: Tensor, pool_2KSD: Tensor, step: Step) -> Tensor:
    """What each row of the step reads from its sequence, [T, K*G*D] in the dtype of q."""
    if len(step.spans) == 1:
        return _attend_span(attend_pass, q_TKGD, pool_2KSD, step.spans[0]).flatten(1)
    spans = [_attend_span(attend_pass, q_TKGD[span.rows], pool_2KSD, span).flatten(1) for span in step.spans]
    return torch.cat(spans)


def _attend_span(attend_pass: AttentionPass, q_TKGD: Tensor, pool_2KSD: Tensor, span: SpanReads) -> Tensor:
    k_KSD, v_KSD = pool_2KSD.unbind()
    if len(span.pieces) == 1:
        piece = span.pieces[0]
        return attend_pass(q_TKGD, k_KSD[:, piece.slots], v_KSD[:, piece.slots], piece.causal)[0]
    out_TKGD = torch.zeros_like(q_TKGD, dtype=torch.float32)
    lse_TKG = q_TKGD.new_full(q_TKGD.shape[:3], -math.inf, dtype=torch.float32)
    for piece in span.pieces:
        rows, slots = piece.rows, piece.slots
        part = attend_pass(q_TKGD[rows], k_KSD[:, slots], v_KSD[:, slots], piece.causal)
        _merge_(out_TKGD[rows], lse_TKG[rows], *part)
    return out_TKGD.to(q_TKGD.dtype)


def _merge_(out_TKGD: Tensor, lse_TKG: Tensor, part_TKGD: Tensor, part_lse_TKG: Tensor) -> None:
    """Takes a further pass into `out` and `lse`, each weighed by its share of the softmax's denominator."""
    share_TKG = torch.sigmoid(part_lse_TKG - lse_TKG)
    out_TKGD.lerp_(part_TKGD.float(), share_TKG[..., None])
    torch.logaddexp(lse_TKG, part_lse_TKG, out=lse_TKG)


def flash_pass(q_TKGD: Tensor, k_KSD: Tensor, v_KSD: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """A pass on torch's flash kernel for CPUs, which is what scaled_dot_product_attention uses there.

    Without a mask the heads of a group are further rows of their key-value head, so that keys are read once.
    A mask needs them apart; then they see the same keys by a stride of zero.
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    rows, kv_heads, group, head_dim = q_TKGD.shape
    if causal:
        shape = (kv_heads, group, *k_KSD.shape[1:])
        k_KGSD, v_KGSD = k_KSD[:, None].expand(shape), v_KSD[:, None].expand(shape)
        out_KGTD, lse_KGT = flash(q_TKGD.permute(1, 2, 0, 3), k_KGSD, v_KGSD, 0.0, True)
        return out_KGTD.permute(2, 0, 1, 3), lse_KGT.permute(2, 0, 1)
    q_1KND = q_TKGD.transpose(0, 1).reshape(1, kv_heads, rows * group, head_dim)
    out_1KND, lse_1KN = flash(q_1KND, k_KSD[None], v_KSD[None])
    out_KTGD = out_1KND[0].unflatten(1, (rows, group))
    return out_KTGD.transpose(0, 1), lse_1KN[0].unflatten(1, (rows, group)).transpose(0, 1)


def plain_pass(q_TKGD: Tensor, k_KSD: Tensor, v_KSD: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """A pass in plain operations, the rows in blocks so that the scores stay small."""
    row_bytes = q_TKGD.shape[1] * q_TKGD.shape[2] * k_KSD.shape[1] * 4
    block_rows = max(1, SCORES_BYTES // row_bytes)
    parts = [
        _plain_block(q_block, k_KSD, v_KSD, block * block_rows if causal else None)
        for block, q_block in enumerate(torch.split(q_TKGD, block_rows))
    ]
    outs, lses = zip(*parts, strict=True)
    return torch.cat(outs), torch.cat(lses)


def _plain_block(q_TKGD: Tensor, k_KSD: Tensor, v_KSD: Tensor, first_row: int | None) -> tuple[Tensor, Tensor]:
    """`first_row`: row i sees slots up to first_row + i; None: all of them."""
    rows, kv_heads, group, head_dim = q_TKGD.shape
    q_KND = q_TKGD.transpose(0, 1).reshape(kv_heads, rows * group, head_dim) * head_dim**-0.5
    scores_KTGS = (q_KND @ k_KSD.transpose(1, 2)).float().unflatten(1, (rows, group))
    if first_row is not None:
        slots_S = torch.arange(k_KSD.shape[1], device=q_TKGD.device)
        last_T = torch.arange(first_row, first_row + rows, device=q_TKGD.device)
        scores_KTGS.masked_fill_((slots_S > last_T[:, None])[None, :, None], -math.inf)
    lse_KTG = scores_KTGS.logsumexp(dim=-1)
    weights_KTGS = scores_KTGS.sub_(lse_KTG[..., None]).exp_().to(q_TKGD.dtype)
    out_KTGD = (weights_KTGS.flatten(1, 2) @ v_KSD).unflatten(1, (rows, group))
    return out_KTGD.transpose(0, 1), lse_KTG.transpose(0, 1)
