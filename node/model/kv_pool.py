"""The keys and values of a stage: one pool of slots per layer, which sequences share page by page.

Owns the memory. Which slots belong to whom is the coordinator's business; slots that nobody wrote hold anything.
Each layer's pool is [2, K, S, D], keys then values, so that neighbouring pages of a head are one view.

Shapes: K key-value heads, S slots, D numbers per head, T rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from layerline.models.spec import ModelSpec


class KVPool:
    """The pools of a stage's layers."""

    def __init__(self, layers_2KSD: Sequence[Tensor]) -> None:
        self._layers_2KSD = layers_2KSD

    @classmethod
    def allocate(cls, spec: ModelSpec, layers: int, slots: int, dtype: torch.dtype, device: torch.device) -> KVPool:
        """Pools of `slots` positions for `layers` layers, not filled."""
        shape = (2, spec.kv_heads, slots, spec.head_dim)
        return cls([torch.empty(shape, dtype=dtype, device=device) for _ in range(layers)])

    @property
    def nbytes(self) -> int:
        """Bytes of all layers."""
        return sum(pool.nbytes for pool in self._layers_2KSD)

    def layer(self, index: int) -> Tensor:
        """The pool [2, K, S, D] of the stage's layer `index`."""
        return self._layers_2KSD[index]
