"""What a gated delta net does between its matrices, in torch.

Of each head a state maps keys to values. A row lets it fade, corrects what its key reads of it towards its value, and
reads it by its query:

    S ← e^g · S
    S ← S + k · β(v - Sᵀk)ᵀ
    o = Sᵀq

Source: Yang et al., Gated Delta Networks (2024).

Shapes: B runs, T rows of each, H heads, K key heads, N numbers of a key, P numbers of a value; of rows in chunks D
chunks of C rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from layerline.models.recurrent import LENGTH_EPSILON, DeltaNetSpec
from layerline.models.workspace import CHUNK_ROWS
from node.model.recurrent.convolution import Convolution


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaNet:
    """Its weights, all float32: the `Recurrence` of a `DeltaNetSpec`.

    A row lets head h fade by e to the power of decay[h] · softplus(a + step_bias[h]).
    """

    spec: DeltaNetSpec
    convolution: Convolution  # of queries, keys and values
    decay_H: Tensor  # below 0
    step_bias_H: Tensor
    norm_P: Tensor  # of each head's output
    norm_epsilon: float

    def __call__(self, made_BTM: Tensor, state_BN: Tensor) -> Tensor:
        spec, heads = self.spec, self.spec.value_heads
        channels = spec.conv_channels
        own = (spec.taps - 1) * channels  # numbers of the convolution's state
        past_BLC = state_BN[:, :own].view(-1, spec.taps - 1, channels)
        state_BHNP = state_BN[:, own:].view(-1, heads, spec.key_dim, spec.value_dim)
        sizes = [channels, spec.value_numbers, heads, heads]
        taken_BTC, gate_BTV, written_BTH, forgotten_BTH = torch.split(made_BTM.float(), sizes, dim=-1)
        mixed_BTC = functional.silu(self.convolution(taken_BTC, past_BLC))
        sides = [spec.key_numbers, spec.key_numbers, spec.value_numbers]
        q_BTQ, k_BTQ, v_BTV = torch.split(mixed_BTC, sides, dim=-1)
        made_BHTP = gated_delta_rule_(
            self._of_heads(q_BTQ) * spec.key_dim**-0.5,
            self._of_heads(k_BTQ),
            v_BTV.reshape(*v_BTV.shape[:2], heads, -1).transpose(1, 2),
            (self.decay_H * functional.softplus(forgotten_BTH + self.step_bias_H)).transpose(1, 2),
            written_BTH.sigmoid().transpose(1, 2),
            state_BHNP,
        )
        made_BTHP = functional.rms_norm(made_BHTP.transpose(1, 2), self.norm_P.shape, self.norm_P, self.norm_epsilon)
        return (made_BTHP.flatten(2) * functional.silu(gate_BTV)).to(made_BTM.dtype)

    def _of_heads(self, keys_BTQ: Tensor) -> Tensor:
        """The query or key, of length 1, that each head reads [B, H, T, N]."""
        spec, readers = self.spec, self.spec.value_heads // self.spec.key_heads
        keys_BTKN = keys_BTQ.reshape(*keys_BTQ.shape[:2], spec.key_heads, -1)
        keys_BTKN = keys_BTKN * torch.rsqrt(keys_BTKN.square().sum(-1, keepdim=True) + LENGTH_EPSILON)
        if readers > 1:
            again = keys_BTKN.repeat(1, 1, readers, 1) if spec.tiled else keys_BTKN.repeat_interleave(readers, dim=2)
            return again.transpose(1, 2)
        return keys_BTKN.transpose(1, 2)


def gated_delta_rule_(
    q_BHTN: Tensor, k_BHTN: Tensor, v_BHTP: Tensor, g_BHT: Tensor, beta_BHT: Tensor, state_BHNP: Tensor
) -> Tensor:
    """What the queries read [B, H, T, P]; `g` is the logarithm of what the state keeps. Updates the state in place."""
    if v_BHTP.shape[2] == 1:
        return _one_row_(q_BHTN, k_BHTN, v_BHTP, g_BHT, beta_BHT, state_BHNP)
    return _in_chunks_(q_BHTN, k_BHTN, v_BHTP, g_BHT, beta_BHT, state_BHNP)


def _one_row_(
    q_BHTN: Tensor, k_BHTN: Tensor, v_BHTP: Tensor, g_BHT: Tensor, beta_BHT: Tensor, state_BHNP: Tensor
) -> Tensor:
    """The recurrence as it is defined, for T = 1."""
    state_BHNP.mul_(g_BHT.exp()[..., None])
    correction_BHTP = (v_BHTP - k_BHTN @ state_BHNP) * beta_BHT[..., None]
    state_BHNP.add_(k_BHTN.transpose(2, 3) * correction_BHTP)
    return q_BHTN @ state_BHNP


def _in_chunks_(
    q_BHTN: Tensor, k_BHTN: Tensor, v_BHTP: Tensor, g_BHT: Tensor, beta_BHT: Tensor, state_BHNP: Tensor
) -> Tensor:
    """The same for many rows: products of matrices within chunks, and the state from chunk to chunk.

    With γ the decay since a chunk's beginning, Γ that from one row to another and S the state before the chunk, the
    corrections of all its rows are U - W·S, where

        (I + tril(β · KKᵀ ⊙ Γ, -1)) · [U, W] = [β·V, β·γ·K]

    Rows that fill the last chunk up leave the state as it is.
    """
    rows = v_BHTP.shape[2]
    chunk = min(CHUNK_ROWS, rows)
    q_BHDCN, k_BHDCN, v_BHDCP, g_BHDC1, beta_BHDC1 = (
        functional.pad(each, (0, 0, 0, -rows % chunk)).reshape(*each.shape[:2], -1, chunk, each.shape[-1])
        for each in (q_BHTN, k_BHTN, v_BHTP, g_BHT[..., None], beta_BHT[..., None])
    )
    since_BHDC1 = g_BHDC1.cumsum(3).exp()  # γ
    between_BHDCC = _between(g_BHDC1)
    u_BHDCP, w_BHDCN = _corrections(k_BHDCN, v_BHDCP, beta_BHDC1, since_BHDC1, between_BHDCC)
    scores_BHDCC = q_BHDCN @ k_BHDCN.transpose(3, 4) * between_BHDCC
    read_BHDCN = q_BHDCN * since_BHDC1
    left_BHDNC = k_BHDCN.transpose(3, 4) * between_BHDCC[..., -1:, :]
    made_BHDCP = torch.empty_like(v_BHDCP)
    for d in range(v_BHDCP.shape[2]):
        corrections_BHCP = u_BHDCP[:, :, d] - w_BHDCN[:, :, d] @ state_BHNP
        made_BHDCP[:, :, d] = read_BHDCN[:, :, d] @ state_BHNP + scores_BHDCC[:, :, d] @ corrections_BHCP
        state_BHNP.mul_(since_BHDC1[:, :, d, -1:]).add_(left_BHDNC[:, :, d] @ corrections_BHCP)
    return made_BHDCP.flatten(2, 3)[:, :, :rows]


def _corrections(
    k_BHDCN: Tensor, v_BHDCP: Tensor, beta_BHDC1: Tensor, since_BHDC1: Tensor, between_BHDCC: Tensor
) -> tuple[Tensor, Tensor]:
    """U and W of every chunk; nothing else that is made for them is kept."""
    written_BHDCN = k_BHDCN * beta_BHDC1
    system_BHDCC = written_BHDCN @ k_BHDCN.transpose(3, 4) * between_BHDCC
    right_BHDCM = torch.cat([v_BHDCP * beta_BHDC1, written_BHDCN * since_BHDC1], dim=-1)
    solved_BHDCM = torch.linalg.solve_triangular(system_BHDCC, right_BHDCM, upper=False, unitriangular=True)
    u_BHDCP, w_BHDCN = torch.split(solved_BHDCM, [v_BHDCP.shape[-1], k_BHDCN.shape[-1]], dim=-1)
    return u_BHDCP, w_BHDCN


def _between(g_BHDC1: Tensor) -> Tensor:
    """Γ: what each row of a chunk (fourth) has left of each before it (fifth), 0 of those after it.

    Added up for each by itself: a difference of sums would have lost what is small beside them.
    """
    chunk = g_BHDC1.shape[3]
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=g_BHDC1.device).tril(-1)
    sums_BHDCC = torch.where(later, g_BHDC1, 0.0).cumsum(3)
    return sums_BHDCC.exp().tril()
