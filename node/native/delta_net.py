"""The heads of a gated delta net as the kernels have them, and what is done with them for the rows of a step.

Shapes: H value heads, N numbers of a key, P numbers of a value.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from layerline.models.recurrent import LENGTH_EPSILON, STATE_NUMBER_BYTES, DeltaNetSpec
from node.kernels.recurrent_structures import DeltaNet
from node.kernels.structures import DELTA_COLUMNS, Operation, OperationKind
from node.native.operations import Buffer, Operations, head_norm
from node.slices.feed_forward_slices import Slices
from node.slices.recurrent_slices import RecurrentSlices

Vector = NDArray[np.float32]


class NativeDeltaNet:
    """The heads of a layer; their structure points into what is here."""

    def __init__(
        self,
        spec: DeltaNetSpec,
        slices: RecurrentSlices,
        load_vector: Callable[[Slices], Vector],
        norm_epsilon: float,
    ) -> None:
        self._spec = spec
        decay_H, step_bias_H, norm_P = (load_vector(own) for own in (slices.decay, slices.step_bias, slices.norm))
        self._query_N = np.full(spec.key_dim, 1.0 / spec.key_dim, np.float32)
        self._key_N = np.full(spec.key_dim, 1.0 / math.sqrt(spec.key_dim), np.float32)
        self._kept = decay_H, step_bias_H, norm_P
        self._structure = DeltaNet(
            decay=decay_H.ctypes.data,
            step_bias=step_bias_H.ctypes.data,
            norm=norm_P.ctypes.data,
            state_offset=(spec.taps - 1) * spec.conv_channels,
            value_heads=spec.value_heads,
            key_heads=spec.key_heads,
            key_dim=spec.key_dim,
            value_dim=spec.value_dim,
            tiled=spec.tiled,
            epsilon=norm_epsilon,
        )

    def mixed(self, index: int) -> Operations:
        """What the second matrix takes, in Buffer.NARROW, of the rows in Buffer.WIDE; `index` is the layer's number."""
        yield from self._normed()
        yield Operation(
            kind=OperationKind.DELTA,
            source=Buffer.WIDE,
            target=Buffer.NARROW,
            index=index,
            weight=ctypes.addressof(self._structure),
        )

    def _normed(self) -> Iterator[Operation]:
        """Makes keys as long as 1, and queries as 1 / √N: by a norm of N numbers that makes them as long as √N."""
        heads, size = self._spec.key_heads, self._spec.key_dim
        for first, weight_N in ((0, self._query_N), (heads, self._key_N)):
            yield head_norm(Buffer.WIDE, first, heads, size, weight_N, LENGTH_EPSILON / size)


def delta_net_bytes(spec: DeltaNetSpec) -> int:
    """Bytes of scratch that a head of it takes: its state, in whole columns that go together."""
    return spec.key_dim * -(-spec.value_dim // DELTA_COLUMNS) * DELTA_COLUMNS * STATE_NUMBER_BYTES
