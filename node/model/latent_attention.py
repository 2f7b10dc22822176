"""A layer's self-attention with a latent: what makes keys and values of latents goes to queries and sums instead.

    Wo · Wv · attention([turned ; Wkᵀ · plain] of each query, [turned ; norm(latent)])

Source: DeepSeek-V2 (2024), section 2.1.

Shapes: T rows, C hidden, N heads, Q numbers of a query as it is made, P of them not turned, D numbers of the key, L of
them the latent, E numbers of a head's value.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from node.model.attention.backend import LayerAttention
from node.model.linear.forms import Linear
from node.model.norm import Norm
from node.model.rope import Rope, turn_
from node.model.step import Step


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryLatent:
    """What queries are made of, where it is not the residual."""

    down: Linear
    norm: Norm

    def __call__(self, x_TC: Tensor) -> Tensor:
        return self.norm(self.down(x_TC))


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention:
    """`queries` and `latent` give the numbers that are turned first, of each head and of the key."""

    core: LayerAttention
    rope: Rope
    query_latent: QueryLatent | None
    queries: Linear
    latent: Linear
    latent_norm: Norm
    keys_NPL: Tensor
    values_NEL: Tensor
    output: Linear

    def __call__(self, x_TC: Tensor, step: Step, layer: int) -> Tensor:
        """What attention adds to the residual [T, C], as layer number `layer` of the stage."""
        spec, rows = self.core.spec, len(x_TC)
        turned, rank = spec.turned_dim, spec.value_dim
        source_TC = x_TC if self.query_latent is None else self.query_latent(x_TC)
        made_TNQ = self.queries(source_TC).view(rows, spec.heads, -1)
        k_T1D = self.latent(x_TC).view(rows, 1, -1)
        turn_(made_TNQ, step.turns[self.rope])
        turn_(k_T1D, step.turns[self.rope])
        latent_T1L = k_T1D.narrow(2, turned, rank)
        latent_T1L.copy_(self.latent_norm(latent_T1L))
        plain_NTP = made_TNQ.narrow(2, turned, made_TNQ.shape[2] - turned).transpose(0, 1)
        q_TND = made_TNQ.new_empty(rows, spec.heads, spec.head_dim)
        q_TND.narrow(2, 0, turned).copy_(made_TNQ.narrow(2, 0, turned))
        q_TND.narrow(2, turned, rank).copy_(torch.bmm(plain_NTP, self.keys_NPL).transpose(0, 1))
        read_TNL = step.attention.attend(layer, q_TND[:, None], (k_T1D, latent_T1L))[:, 0]
        values_TNE = torch.bmm(read_TNL.transpose(0, 1), self.values_NEL.transpose(1, 2)).transpose(0, 1)
        return self.output(values_TNE.flatten(1))
