"""The keys and values of a stage: one pool of slots per layer, which sequences share page by page.

Owns the memory and the form of the numbers in it. Which slots belong to whom is the coordinator's business; slots
that nobody wrote hold anything. Slots lie next to each other within a head, so that neighbouring pages are one view.

They are held in the dtype of the computation, in another, or in int8: then each number is up to 127 steps to either
side, and the size of a step, the scale, lies beside for every group of a key's or value's numbers. (One scale for all
of a head would be too coarse where a few numbers are far larger than the others, as in the keys of Qwen2.) Runs of
another dtype are read as a copy. What is read depends on what was written into a slot and on nothing else.

Shapes: K key-value heads, S slots, D numbers per head in G groups of N, T rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from layerline.models.sizes import int8_group
from layerline.models.spec import AttentionSpec
from node.model.tensors import TORCH_DTYPES

SCALE_DTYPE = torch.bfloat16  # what sizes.kv_bytes_per_token counts with
SMALLEST_SCALE = 1e-30
COPIED_SLOTS = 1024  # whose copy fits the cache of a core; longer runs are read piece by piece
ANY_SLOTS = 1 << 40


class LayerPool(Protocol):
    """Keys and values of one layer."""

    @property
    def nbytes(self) -> int:
        """Bytes of the layer's slots."""

    def write(self, slots_T: Tensor, both_T2KD: Tensor) -> None:
        """Puts the keys and values of each row into its slot."""

    def run(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """The keys and values [1, K, count, D] in neighbouring slots."""


class FloatPool:
    """Keys and values as floating-point numbers; a run is a view if they are held in `dtype`."""

    def __init__(self, both_2KSD: Tensor, dtype: torch.dtype) -> None:
        self._both_2KSD = both_2KSD
        self._keys_1KSD, self._values_1KSD = both_2KSD[:1], both_2KSD[1:]
        self._dtype = dtype
        self._converts = both_2KSD.dtype != dtype

    @property
    def nbytes(self) -> int:
        return self._both_2KSD.nbytes

    def write(self, slots_T: Tensor, both_T2KD: Tensor) -> None:
        self._both_2KSD.index_copy_(2, slots_T, both_T2KD.permute(1, 2, 0, 3).to(self._both_2KSD.dtype))

    def run(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        keys_1KSD, values_1KSD = self._keys_1KSD.narrow(2, first, count), self._values_1KSD.narrow(2, first, count)
        if self._converts:
            return keys_1KSD.to(self._dtype), values_1KSD.to(self._dtype)
        return keys_1KSD, values_1KSD


class Int8Pool:
    """Keys and values as integers from -127 to 127, and scales beside them."""

    def __init__(self, steps_2KSD: Tensor, scales_2KSG1: Tensor, dtype: torch.dtype) -> None:
        self._steps_2KSD = steps_2KSD
        self._scales_2KSG1 = scales_2KSG1
        self._dtype = dtype

    @property
    def nbytes(self) -> int:
        return self._steps_2KSD.nbytes + self._scales_2KSG1.nbytes

    def write(self, slots_T: Tensor, both_T2KD: Tensor) -> None:
        grouped_2KTGN = self._grouped(both_T2KD.permute(1, 2, 0, 3).float())
        scales_2KTG1 = (grouped_2KTGN.abs().amax(dim=-1, keepdim=True) / 127).to(SCALE_DTYPE)
        steps_2KTGN = (grouped_2KTGN / scales_2KTG1.clamp_min(SMALLEST_SCALE)).round_().clamp_(-127, 127)
        self._steps_2KSD.index_copy_(2, slots_T, steps_2KTGN.flatten(-2).to(torch.int8))
        self._scales_2KSG1.index_copy_(2, slots_T, scales_2KTG1)

    def run(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        both_2KSD = self._steps_2KSD.narrow(2, first, count).to(self._dtype)
        self._grouped(both_2KSD).mul_(self._scales_2KSG1.narrow(2, first, count))
        return both_2KSD[:1], both_2KSD[1:]

    def _grouped(self, both_2KTD: Tensor) -> Tensor:
        return both_2KTD.view(*both_2KTD.shape[:3], self._scales_2KSG1.shape[3], -1)


class KVPool:
    """The pools of a stage's layers, in order. Runs of more than `most_slots` are to be read piece by piece."""

    def __init__(self, layers: Sequence[LayerPool], most_slots: int) -> None:
        self.layers = layers
        self.most_slots = most_slots

    @classmethod
    def allocate(
        cls,
        layers: Sequence[AttentionSpec],
        slots: int,
        kv_dtype: str,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> KVPool:
        """Pools of `slots` positions for each of `layers`, not filled; `dtype` is that of the computation."""

        def layer_pool(spec: AttentionSpec) -> LayerPool:
            assert spec.value_dim == spec.head_dim, "no family has values and keys of unlike size"
            shape = (2, spec.kv_heads, slots, spec.head_dim)
            both_2KSD = torch.empty(shape, dtype=TORCH_DTYPES[kv_dtype], device=device)
            if kv_dtype != "int8":
                return FloatPool(both_2KSD, dtype)
            scales_shape = (*shape[:3], spec.head_dim // int8_group(spec.head_dim), 1)
            return Int8Pool(both_2KSD, torch.empty(scales_shape, dtype=SCALE_DTYPE, device=device), dtype)

        most_slots = ANY_SLOTS if TORCH_DTYPES[kv_dtype] == dtype else COPIED_SLOTS
        return cls([layer_pool(layer) for layer in layers], most_slots)

    @property
    def nbytes(self) -> int:
        """Bytes of all layers."""
        return sum(layer.nbytes for layer in self.layers)
