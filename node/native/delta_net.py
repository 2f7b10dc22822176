"""The weights of a gated delta net as the kernels have them, and what is done with them for the rows of a step.

Shapes: C channels, L taps, H value heads, N numbers of a key, P numbers of a value.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from layerline.models.recurrent import LENGTH_EPSILON, STATE_NUMBER_BYTES, DeltaNetSpec
from node.kernels.recurrent_structures import Convolution, DeltaNet
from node.kernels.structures import DELTA_COLUMNS, Operation, OperationKind
from node.native.matrices import NativeMatrix
from node.native.operations import Buffer, Operations, product
from node.slices.feed_forward_slices import Slices
from node.slices.recurrent_slices import RecurrentSlices

Vector = NDArray[np.float32]


class NativeDeltaNet:
    """Those of a layer beside its second matrix; its structures point into what is here."""

    def __init__(
        self,
        spec: DeltaNetSpec,
        made: NativeMatrix,
        conv_LC: Vector,
        load_vector: Callable[[Slices], Vector | None],
        slices: RecurrentSlices,
        norm_epsilon: float,
    ) -> None:
        self.spec = spec
        self.made = made
        decay_H, step_bias_H, norm_P = (load_vector(own) for own in (slices.decay, slices.step_bias, slices.norm))
        assert decay_H is not None
        assert step_bias_H is not None
        assert norm_P is not None
        self._query_N = np.full(spec.key_dim, 1.0 / spec.key_dim, np.float32)
        self._key_N = np.full(spec.key_dim, 1.0 / math.sqrt(spec.key_dim), np.float32)
        self._kept = conv_LC, decay_H, step_bias_H, norm_P
        self._convolution = Convolution(
            weight=conv_LC.ctypes.data,
            channels=spec.conv_channels,
            taps=spec.taps,
            column=0,
            out_column=0,
            times_before=-1,
            times_after=-1,
            silu=True,
        )
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

    @property
    def row_matrices(self) -> tuple[NativeMatrix, ...]:
        """Those that all rows of a step are multiplied with."""
        return (self.made,)

    def mixed(self, source: Buffer, index: int) -> Operations:
        """What the second matrix takes of the rows of `source`, in Buffer.NARROW; `index` is the layer's number."""
        yield product(source, Buffer.WIDE, self.made)
        yield Operation(
            kind=OperationKind.CONVOLVE,
            source=Buffer.WIDE,
            target=Buffer.WIDE,
            index=index,
            weight=ctypes.addressof(self._convolution),
        )
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
        heads = self.spec.key_heads
        for first, weight_N in ((0, self._query_N), (heads, self._key_N)):
            yield Operation(
                kind=OperationKind.HEAD_NORM,
                target=Buffer.WIDE,
                index=first,
                count=heads,
                size=len(weight_N),
                number=LENGTH_EPSILON / len(weight_N),
                weight=weight_N.ctypes.data,
            )


def delta_net_bytes(spec: DeltaNetSpec) -> int:
    """Bytes of scratch that a head of it takes: its state, in whole columns that go together."""
    return spec.key_dim * -(-spec.value_dim // DELTA_COLUMNS) * DELTA_COLUMNS * STATE_NUMBER_BYTES
