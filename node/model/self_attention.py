"""A layer's self-attention: its two matrices around attention over pages.

    Wo · attention(rotate(norm(Wqkv · x + b)))

where a family may multiply what attention gives by the sigmoid of a gate that Wqkv makes, too.

Source: grouped queries: Ainslie et al., GQA (2023). The gate: Qiu et al., Gated Attention for Large Language Models
(2025).

Shapes: T rows, C hidden, K key-value heads, G query heads of each, D numbers of a query or key, E numbers of a value.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.models.query_growth import QueryGrowth
from node.model.attention.backend import LayerAttention
from node.model.linear.forms import Linear
from node.model.norm import Norm
from node.model.rope import Rope, turn_
from node.model.step import Step


@dataclass(frozen=True, slots=True)
class HeadsNorm:
    """Norms the query and the key of each head by itself, in place; one weight a head [K·G + K, D], or for all [D]."""

    norm: Norm

    def __call__(self, turned_TND: Tensor) -> None:
        turned_TND.copy_(self.norm(turned_TND))


@dataclass(frozen=True, slots=True)
class RowsNorm:
    """Norms the queries of all heads of a row as one, and its keys, in place."""

    queries: Norm
    keys: Norm
    query_heads: int

    def __call__(self, turned_TND: Tensor) -> None:
        rows, heads = turned_TND.shape[:2]
        parts = ((self.queries, 0, self.query_heads), (self.keys, self.query_heads, heads - self.query_heads))
        for norm, first, count in parts:
            part_TND = turned_TND.narrow(1, first, count)
            part_TND.copy_(norm(part_TND.reshape(rows, -1)).view(part_TND.shape))


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfAttention:
    """`qkv` has the rows of q, k, v and perhaps the gate, one below the other.

    Where values are keys, it has none of v; where a layer reads the keys of another, of q alone. `qk_norm` norms q and
    k, if there is one; `turned_norm` does so after they have been rotated.
    """

    core: LayerAttention
    qk_norm: HeadsNorm | RowsNorm | None
    turned_norm: HeadsNorm | None
    rope: Rope | None  # layers with the same rotation share it
    qkv: Linear
    output: Linear
    value_norm: Norm | None = None
    value_order_E: Tensor | None = None  # where values are keys: which number of a key each number of a value is

    def __call__(self, x_TC: Tensor, step: Step, layer: int) -> Tensor:
        """What attention adds to the residual [T, C], as layer number `layer` of the stage."""
        spec = self.core.spec
        heads, kv_heads = spec.heads, spec.kv_heads
        qkv_TO = self.qkv(x_TC)
        rows, made_heads = len(qkv_TO), heads + (kv_heads if spec.source is None else 0)
        turned_TND = qkv_TO.narrow(1, 0, made_heads * spec.head_dim).view(rows, made_heads, -1)
        v_TKE = self._values(qkv_TO, turned_TND) if spec.source is None else None
        if self.qk_norm is not None:
            self.qk_norm(turned_TND)
        if self.rope is not None:
            turn_(turned_TND, step.turns[self.rope])
        if self.turned_norm is not None:
            self.turned_norm(turned_TND)
        if spec.query_growth is not None:
            turned_TND.narrow(1, 0, heads).mul_(_growth(spec.query_growth, step.attention.positions_T)[:, None, None])
        q_TKGD = turned_TND.narrow(1, 0, heads).view(rows, kv_heads, -1, spec.head_dim)
        kept = None if v_TKE is None else (turned_TND.narrow(1, heads, kv_heads), v_TKE)
        made_TE = step.attention.attend(layer, q_TKGD, kept).flatten(1)
        if spec.output_gate:
            first = spec.query_numbers + spec.key_numbers + spec.value_numbers
            made_TE = made_TE * torch.sigmoid(qkv_TO.narrow(1, first, spec.output_numbers))
        return self.output(made_TE)

    def _values(self, qkv_TO: Tensor, made_TND: Tensor) -> Tensor:
        """The values [T, K, E], of the queries and keys as they are made where these are keys."""
        spec, first = self.core.spec, self.core.spec.query_numbers + self.core.spec.key_numbers
        if self.value_order_E is None:
            v_TKE = qkv_TO.narrow(1, first, spec.value_numbers).view(len(qkv_TO), spec.kv_heads, -1)
        else:
            v_TKE = made_TND.narrow(1, spec.heads, spec.kv_heads).index_select(2, self.value_order_E)
        return v_TKE if self.value_norm is None else self.value_norm(v_TKE)


def _growth(growth: QueryGrowth, positions_T: Tensor) -> Tensor:
    """What the queries of each row are multiplied by."""
    return 1.0 + growth.factor * torch.log1p(torch.floor((positions_T + growth.offset) / growth.length))
