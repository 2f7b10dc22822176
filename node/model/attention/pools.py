"""The keys and values of a layer: a pool of slots, which sequences share page by page.

Owns the memory and the form of the numbers in it. Which slots belong to whom is the coordinator's business; slots
that nobody wrote hold anything. Slots lie next to each other within a head, so that neighbouring pages are one view.

Numbers are held in the dtype of the computation, in another, or in int8: then each is up to 127 steps to either
side, and the size of a step, the scale, lies beside for every group of a key's or value's numbers. (One scale for all
of a head would be too coarse where a few numbers are far larger than the others, as in the keys of Qwen2.) Runs of
another dtype are read as a copy. What is read depends on what was written into a slot and on nothing else.

Shapes: K key-value heads, S slots, D numbers of a key, E numbers of a value, in G groups of N, T rows.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from layerline.models.kv_sizes import int8_group
from layerline.models.spec import AttentionSpec
from node.model.tensors import TORCH_DTYPES

SCALE_DTYPE = torch.bfloat16  # what sizes.kv_bytes_per_token counts with
SMALLEST_SCALE = 1e-30
MOST_FLOAT16 = 65504.0
COPIED_SLOTS = 1024  # whose copy fits the cache of a core; longer runs are read piece by piece
ANY_SLOTS = 1 << 40


class HeadsPool(Protocol):
    """Either the keys or the values of one layer."""

    @property
    def nbytes(self) -> int:
        """Bytes of the slots."""

    def write(self, slots_T: Tensor, rows_TKD: Tensor) -> None:
        """Puts each row into its slot."""

    def run(self, first: int, count: int) -> Tensor:
        """Neighbouring slots [1, K, count, D]."""


class FloatPool:
    """Floating-point numbers; a run is a view if they are held in `dtype`."""

    def __init__(self, numbers_1KSD: Tensor, dtype: torch.dtype) -> None:
        self._numbers_1KSD = numbers_1KSD
        self.numbers_KSD = numbers_1KSD[0]
        self._dtype = dtype
        self._converts = numbers_1KSD.dtype != dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the slots."""
        return self._numbers_1KSD.nbytes

    def write(self, slots_T: Tensor, rows_TKD: Tensor) -> None:
        """Puts each row into its slot."""
        rows_KTD = rows_TKD.transpose(0, 1)
        if self.numbers_KSD.dtype == torch.float16:  # what is too large becomes the largest, not infinite
            rows_KTD = rows_KTD.float().clamp(-MOST_FLOAT16, MOST_FLOAT16)
        self.numbers_KSD.index_copy_(1, slots_T, rows_KTD.to(self.numbers_KSD.dtype) if self._converts else rows_KTD)

    def run(self, first: int, count: int) -> Tensor:
        """Neighbouring slots [1, K, count, D]."""
        run_1KSD = self._numbers_1KSD.narrow(2, first, count)
        return run_1KSD.to(self._dtype) if self._converts else run_1KSD


class Int8Pool:
    """Integers from -127 to 127, and scales beside them."""

    def __init__(self, steps_KSD: Tensor, scales_KSG1: Tensor, dtype: torch.dtype) -> None:
        self._steps_KSD = steps_KSD
        self._scales_KSG1 = scales_KSG1
        self._dtype = dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the slots and their scales."""
        return self._steps_KSD.nbytes + self._scales_KSG1.nbytes

    def write(self, slots_T: Tensor, rows_TKD: Tensor) -> None:
        """Puts each row into its slot, rounded."""
        grouped_KTGN = self._grouped(rows_TKD.transpose(0, 1).float())
        scales_KTG1 = (grouped_KTGN.abs().amax(dim=-1, keepdim=True) / 127).to(SCALE_DTYPE)
        steps_KTGN = (grouped_KTGN / scales_KTG1.clamp_min(SMALLEST_SCALE)).round_().clamp_(-127, 127)
        self._steps_KSD.index_copy_(1, slots_T, steps_KTGN.flatten(-2).to(torch.int8))
        self._scales_KSG1.index_copy_(1, slots_T, scales_KTG1)

    def run(self, first: int, count: int) -> Tensor:
        """Neighbouring slots [1, K, count, D], in the dtype of the computation."""
        run_KSD = self._steps_KSD.narrow(1, first, count).to(self._dtype)
        self._grouped(run_KSD).mul_(self._scales_KSG1.narrow(1, first, count))
        return run_KSD[None]

    def _grouped(self, rows_KTD: Tensor) -> Tensor:
        return rows_KTD.view(*rows_KTD.shape[:2], self._scales_KSG1.shape[2], -1)


class LayerPool(Protocol):
    """Keys and values of one layer."""

    @property
    def nbytes(self) -> int:
        """Bytes of the layer's slots."""

    @property
    def floats(self) -> tuple[Tensor, Tensor] | None:
        """All keys [K, S, D] and values [K, S, E] where they lie by themselves in floating point; else None."""

    def write(self, slots_T: Tensor, k_TKD: Tensor, v_TKE: Tensor) -> None:
        """Puts the keys and values of each row into its slot."""

    def run(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """The keys [1, K, count, D] and values [1, K, count, E] in neighbouring slots."""


class LatentPool:
    """Keys whose last numbers are the values, which are not kept beside them."""

    def __init__(self, keys: HeadsPool, value_dim: int) -> None:
        self.floats = None
        self._keys = keys
        self._value_dim = value_dim

    @property
    def nbytes(self) -> int:
        """Bytes of the layer's slots."""
        return self._keys.nbytes

    def write(self, slots_T: Tensor, k_TKD: Tensor, v_TKE: Tensor) -> None:
        """Puts the keys of each row into its slot; the values are in them."""
        del v_TKE
        self._keys.write(slots_T, k_TKD)

    def run(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """The keys [1, K, count, D] in neighbouring slots, and the values [1, K, count, E] in these."""
        k_1KSD = self._keys.run(first, count)
        return k_1KSD, k_1KSD[..., -self._value_dim :]


class PairPool:
    """Keys and values that lie by themselves, each of its own size."""

    def __init__(self, keys: HeadsPool, values: HeadsPool) -> None:
        self._keys = keys
        self._values = values

    @property
    def nbytes(self) -> int:
        """Bytes of the layer's slots."""
        return self._keys.nbytes + self._values.nbytes

    @property
    def floats(self) -> tuple[Tensor, Tensor] | None:
        """All keys [K, S, D] and values [K, S, E] where they are held in floating point; None where in int8."""
        if isinstance(self._keys, FloatPool) and isinstance(self._values, FloatPool):
            return self._keys.numbers_KSD, self._values.numbers_KSD
        return None

    def write(self, slots_T: Tensor, k_TKD: Tensor, v_TKE: Tensor) -> None:
        """Puts the keys and values of each row into its slot."""
        self._keys.write(slots_T, k_TKD)
        self._values.write(slots_T, v_TKE)

    def run(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """The keys [1, K, count, D] and values [1, K, count, E] in neighbouring slots."""
        return self._keys.run(first, count), self._values.run(first, count)


def layer_pool(
    spec: AttentionSpec, slots: int, kv_dtype: str, *, dtype: torch.dtype, device: torch.device
) -> LayerPool:
    """A pool of `slots` positions, not filled; `dtype` is that of the computation."""

    def heads_pool(numbers: int) -> HeadsPool:
        held_1KSD = torch.empty((1, spec.kv_heads, slots, numbers), dtype=TORCH_DTYPES[kv_dtype], device=device)
        if kv_dtype != "int8":
            return FloatPool(held_1KSD, dtype)
        scales_shape = (spec.kv_heads, slots, numbers // int8_group(numbers), 1)
        return Int8Pool(held_1KSD[0], torch.empty(scales_shape, dtype=SCALE_DTYPE, device=device), dtype)

    if spec.latent is not None:
        return LatentPool(heads_pool(spec.head_dim), spec.value_dim)
    return PairPool(heads_pool(spec.head_dim), heads_pool(spec.value_dim))


def most_slots(kv_dtype: str, dtype: torch.dtype) -> int:
    """How many slots are to be read at a time: any, unless a run is read as a copy."""
    return ANY_SLOTS if TORCH_DTYPES[kv_dtype] == dtype else COPIED_SLOTS
