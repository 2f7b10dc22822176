"""What a Mamba 2 layer does between its matrices: a state space model whose state decays by a number a head and row.

Shapes: B runs, T rows of each, L rows of a chunk, S those that one of them reads; G groups, K heads of a group, P
numbers of a head, N of its row of state; M numbers as the first matrix makes them, C of them for the convolution.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu, softplus

from layerline.models.recurrent import Mamba2Spec
from node.model.recurrent.convolution import Convolution

CHUNK_ROWS = 64  # whose rows read each other as in attention; what was before them they read of the state


@dataclass(frozen=True, kw_only=True, slots=True)
class Mamba2:
    """The weights of such a layer but for its matrices, float32.

    Source: Dao and Gu, Transformers are SSMs (2024); the chunks are those of its section 6.
    """

    spec: Mamba2Spec
    convolution: Convolution
    decay_H: Tensor  # how fast a head forgets, below 0
    skip_H: Tensor  # how much of a row goes past the state
    step_bias_H: Tensor
    norm_O: Tensor
    norm_epsilon: float

    def __call__(self, made_BTM: Tensor, state_BN: Tensor) -> Tensor:
        """What the second matrix takes, as the protocol `Recurrence` has it."""
        spec = self.spec
        sizes = [spec.output_numbers, spec.conv_channels, spec.heads]
        gate_BTO, mixed_BTC, step_BTH = torch.split(made_BTM, sizes, dim=-1)
        past_numbers = spec.state_numbers - spec.output_numbers * spec.state_dim
        past_BLC = torch.unflatten(state_BN[:, :past_numbers], 1, (-1, spec.conv_channels))
        state_BGKPN = state_BN[:, past_numbers:].view(-1, *self._heads, spec.head_dim, spec.state_dim)
        mixed_BTC = silu(self.convolution(mixed_BTC, past_BLC))
        read = self._read_row if made_BTM.shape[1] == 1 else self._read_chunk
        chunks = zip(*(torch.split(own, CHUNK_ROWS, dim=1) for own in (mixed_BTC, self._steps(step_BTH))), strict=True)
        read_BTO = torch.cat([read(mixed, step, state_BGKPN).flatten(2) for mixed, step in chunks], dim=1)
        return self._normed(read_BTO * silu(gate_BTO.float())).to(made_BTM.dtype)

    @property
    def _heads(self) -> tuple[int, int]:
        return self.spec.groups, self.spec.heads // self.spec.groups

    def _steps(self, step_BTH: Tensor) -> Tensor:
        """How far each row moves the state of each head [B, T, G, K]."""
        return torch.unflatten(softplus(step_BTH.float() + self.step_bias_H), -1, self._heads)

    def _parts(self, mixed_BTC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of convolved rows x [B, T, G, K, P], what of it goes into the state [B, T, G, N], and what reads it."""
        spec = self.spec
        keys = spec.groups * spec.state_dim
        x, into, out = torch.split(mixed_BTC, [spec.output_numbers, keys, keys], dim=-1)
        into, out = (torch.unflatten(own, -1, (spec.groups, spec.state_dim)) for own in (into, out))
        return torch.unflatten(x, -1, (*self._heads, spec.head_dim)), into, out

    def _read_row(self, mixed_B1C: Tensor, step_B1GK: Tensor, state_BGKPN: Tensor) -> Tensor:
        """A single row [B, 1, G, K, P]: the state is moved, then read."""
        x, into, out = self._parts(mixed_B1C)
        log_decay_B1GK = step_B1GK * self._by_group(self.decay_H)
        state_BGKPN *= log_decay_B1GK.exp().squeeze(1)[..., None, None]
        moved_BGKP = (x * step_B1GK[..., None]).squeeze(1)
        state_BGKPN += moved_BGKP[..., None] * into.transpose(1, 2)[:, :, :, None]
        read_BGKP = (state_BGKPN * out.transpose(1, 2)[:, :, :, None]).sum(-1)
        return read_BGKP[:, None] + x * self._by_group(self.skip_H)[..., None]

    def _read_chunk(self, mixed_BLC: Tensor, step_BLGK: Tensor, state_BGKPN: Tensor) -> Tensor:
        """Neighbouring rows [B, L, G, K, P]: each reads those before it and the state before them all."""
        x, into, out = self._parts(mixed_BLC)
        moved_BGKLP = (x * step_BLGK[..., None]).permute(0, 2, 3, 1, 4)
        into_BGSN, out_BGLN = into.transpose(1, 2), out.transpose(1, 2)
        log_decay_BGKL = (step_BLGK * self._by_group(self.decay_H)).permute(0, 2, 3, 1)
        between_BGKLS = _decay_between(log_decay_BGKL)
        since_BGKL = log_decay_BGKL.cumsum(-1).exp()
        weights_BGKLS = between_BGKLS * (out_BGLN @ into_BGSN.transpose(-1, -2))[:, :, None]
        before_BGKLP = (out_BGLN[:, :, None] @ state_BGKPN.transpose(-1, -2)) * since_BGKL[..., None]
        read_BGKLP = weights_BGKLS @ moved_BGKLP + before_BGKLP
        left_BGKPS = (moved_BGKLP * between_BGKLS[..., -1, :, None]).transpose(-1, -2)
        state_BGKPN *= since_BGKL[..., -1, None, None]
        state_BGKPN += left_BGKPS @ into_BGSN[:, :, None]
        return read_BGKLP.permute(0, 3, 1, 2, 4) + x * self._by_group(self.skip_H)[..., None]

    def _normed(self, read_BTO: Tensor) -> Tensor:
        """The heads of each group normed as one."""
        grouped = torch.unflatten(read_BTO, -1, (self.spec.groups, -1))
        return rms_norm(grouped, (grouped.shape[-1],), eps=self.norm_epsilon).flatten(-2) * self.norm_O

    def _by_group(self, numbers_H: Tensor) -> Tensor:
        """A number of each head [G, K]."""
        return numbers_H.view(self._heads)


def _decay_between(log_decay_BGKL: Tensor) -> Tensor:
    """What is left in row l of what row s gave [B, G, K, L, S], 0 before it.

    Logarithms are added from s on, since the difference of two sums from the first row on would lose digits.
    """
    rows = log_decay_BGKL.shape[-1]
    later = torch.ones(rows, rows, dtype=torch.bool, device=log_decay_BGKL.device).tril(-1)
    sums = torch.where(later, log_decay_BGKL[..., None], 0.0).cumsum(-2)
    return sums.exp().tril()
