"""One attention pass: rows over a run of neighbouring slots, with the log-sum-exp that merging needs.

There is a pass on torch's flash kernel for CPUs and one in plain operations for any device and any layer. Neither
copies the keys and values of a context, or repeats them for grouped heads.

Shapes: T rows, K key-value heads, G query heads of each, D numbers of a query or key, E numbers of a value, S slots,
N rows times G.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from layerline.models.spec import AttentionSpec

SCORES_BYTES = 8 << 20  # of float32 scores in one block of rows; a single row may need more


class AttentionPass(Protocol):
    """Softmax attention over a run."""

    def __call__(self, q_TKGD: Tensor, k_1KSD: Tensor, v_1KSE: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        """What the rows read [T, K, G, E], and the float32 log-sum-exp of each row's scores [T, K, G].

        Rows see all slots or, if `causal`, row i slots 0..i.
        """


def attention_pass(spec: AttentionSpec, device: torch.device) -> AttentionPass:
    """The fastest pass that can do a layer's attention on `device`."""
    if device.type == "cpu" and not spec.soft_cap and spec.value_dim == spec.head_dim:
        return FlashPass(spec.score_scale)
    if device.type == "cpu" and not spec.soft_cap and spec.latent is not None:
        return KeysPass(FlashPass(spec.score_scale))
    return PlainPass(spec.score_scale, spec.soft_cap)


def reversed_pass(attend_pass: AttentionPass, q_TKGD: Tensor, k_1KSD: Tensor, v_1KSE: Tensor) -> tuple[Tensor, Tensor]:
    """A causal pass the other way round: row i sees slots i and after. They are few, so that a copy is no matter."""
    out_TKGE, lse_TKG = attend_pass(q_TKGD.flip(0), k_1KSD.flip(2), v_1KSE.flip(2), True)
    return out_TKGE.flip(0), lse_TKG.flip(0)


@dataclass(frozen=True, slots=True)
class FlashPass:
    """The kernel that scaled_dot_product_attention uses on CPUs. It has no soft cap, and values of the size of keys.

    Without a mask the heads of a group are further rows of their key-value head, so that keys are read once.
    A causal mask needs them apart; then they see the same keys by a stride of zero.
    """

    scale: float

    def __call__(self, q_TKGD: Tensor, k_1KSD: Tensor, v_1KSE: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
        rows, kv_heads, group, head_dim = q_TKGD.shape
        if causal:
            shape = (kv_heads, group, *k_1KSD.shape[2:])
            k_KGSD, v_KGSE = k_1KSD[0][:, None].expand(shape), v_1KSE[0][:, None].expand(shape)
            out_KGTE, lse_KGT = flash(q_TKGD.permute(1, 2, 0, 3), k_KGSD, v_KGSE, 0.0, True, scale=self.scale)
            return out_KGTE.permute(2, 0, 1, 3), lse_KGT.permute(2, 0, 1)
        if rows == 1:
            one: tuple[Tensor, Tensor] = flash(q_TKGD, k_1KSD, v_1KSE, scale=self.scale)
            return one
        q_1KND = q_TKGD.transpose(0, 1).reshape(1, kv_heads, rows * group, head_dim)
        out_1KNE, lse_1KN = flash(q_1KND, k_1KSD, v_1KSE, scale=self.scale)
        out_KTGE, lse_KTG = out_1KNE.view(kv_heads, rows, group, head_dim), lse_1KN.view(kv_heads, rows, group)
        return out_KTGE.transpose(0, 1), lse_KTG.transpose(0, 1)


@dataclass(frozen=True, slots=True)
class KeysPass:
    """One whose values are the last numbers of the keys: the others are read with them, and left out."""

    whole: FlashPass

    def __call__(self, q_TKGD: Tensor, k_1KSD: Tensor, v_1KSE: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        out_TKGD, lse_TKG = self.whole(q_TKGD, k_1KSD, k_1KSD, causal)
        return out_TKGD[..., -v_1KSE.shape[3] :], lse_TKG


@dataclass(frozen=True, slots=True)
class PlainPass:
    """Plain operations, the rows in blocks so that the scores stay small.

    A soft cap, unless it is 0, keeps scores within it on either side: cap * tanh(score / cap), as in Gemma 2 (2024).
    """

    scale: float
    soft_cap: float

    def __call__(self, q_TKGD: Tensor, k_1KSD: Tensor, v_1KSE: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        _, kv_heads, group, _ = q_TKGD.shape
        block_rows = max(1, SCORES_BYTES // (kv_heads * group * k_1KSD.shape[2] * 4))
        parts = [
            self._block(q_block, k_1KSD[0], v_1KSE[0], block * block_rows if causal else None)
            for block, q_block in enumerate(torch.split(q_TKGD.transpose(0, 1), block_rows, dim=1))
        ]
        outs, lses = zip(*parts, strict=True)
        return torch.cat(outs, dim=1).transpose(0, 1), torch.cat(lses, dim=1).transpose(0, 1)

    def _block(self, q_KTGD: Tensor, k_KSD: Tensor, v_KSE: Tensor, first_row: int | None) -> tuple[Tensor, Tensor]:
        """`first_row`: row i sees slots 0..first_row + i; None: all of them."""
        kv_heads, rows, group, head_dim = q_KTGD.shape
        q_KND = q_KTGD.reshape(kv_heads, rows * group, head_dim)
        scores_KTGS = self._scores(q_KND @ k_KSD.transpose(1, 2)).view(kv_heads, rows, group, -1)
        if first_row is not None:
            slots_S = torch.arange(k_KSD.shape[1], device=q_KTGD.device)
            last_T = torch.arange(first_row, first_row + rows, device=q_KTGD.device)
            scores_KTGS.masked_fill_((slots_S > last_T[:, None])[None, :, None], -math.inf)
        lse_KTG = scores_KTGS.logsumexp(dim=-1)
        weights_KTGS = scores_KTGS.sub_(lse_KTG[..., None]).exp_().to(q_KTGD.dtype)
        return (weights_KTGS.flatten(1, 2) @ v_KSE).view(kv_heads, rows, group, -1), lse_KTG

    def _scores(self, products_KNS: Tensor) -> Tensor:
        scores_KNS = products_KNS.float() * self.scale
        return scores_KNS.div_(self.soft_cap).tanh_().mul_(self.soft_cap) if self.soft_cap else scores_KNS
