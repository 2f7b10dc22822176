"""The keys and values of a stage: one pool of slots per layer, which sequences share page by page.

Owns the memory. Which slots belong to whom is the coordinator's business; slots that nobody wrote hold anything.
Slots lie next to each other within a head, so that neighbouring pages are one view.

Shapes: K key-value heads, S slots, D numbers per head, T rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from layerline.models.spec import ModelSpec


class LayerPool:
    """Keys and values of one layer."""

    def __init__(self, both_2KSD: Tensor) -> None:
        self._both_2KSD = both_2KSD
        self._keys_KSD, self._values_KSD = both_2KSD.unbind()

    @property
    def nbytes(self) -> int:
        """Bytes of the layer's slots."""
        return self._both_2KSD.nbytes

    def write(self, slots_T: Tensor, both_T2KD: Tensor) -> None:
        """Puts the keys and values of each row into its slot."""
        self._both_2KSD.index_copy_(2, slots_T, both_T2KD.permute(1, 2, 0, 3))

    def run(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Views of the keys and values [K, count, D] in neighbouring slots."""
        return self._keys_KSD.narrow(1, first, count), self._values_KSD.narrow(1, first, count)


class KVPool:
    """The pools of a stage's layers, in order."""

    def __init__(self, layers: list[LayerPool]) -> None:
        self.layers = layers

    @classmethod
    def allocate(cls, spec: ModelSpec, layers: int, slots: int, dtype: torch.dtype, device: torch.device) -> KVPool:
        """Pools of `slots` positions for `layers` layers, not filled."""
        shape = (2, spec.kv_heads, slots, spec.head_dim)
        return cls([LayerPool(torch.empty(shape, dtype=dtype, device=device)) for _ in range(layers)])

    @property
    def nbytes(self) -> int:
        """Bytes of all layers."""
        return sum(layer.nbytes for layer in self.layers)
