"""The weights of a recurrent layer as the kernels have them, and what is done with them for the rows of a step.

Shapes: C channels, L taps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerline.models.recurrent import DeltaNetSpec, Mamba2Spec, RecurrentSpec, ShortConvSpec
from node.kernels.recurrent_structures import Convolution
from node.kernels.structures import Operation, OperationKind
from node.native.delta_net import NativeDeltaNet
from node.native.feed_forward import Load
from node.native.mamba2 import NativeMamba2
from node.native.matrices import NativeMatrix
from node.native.operations import Buffer, Operations, product
from node.slices.feed_forward_slices import Slices
from node.slices.recurrent_slices import RecurrentSlices

Vector = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeShortConv:
    """Those of a short convolution beside its second matrix."""

    spec: ShortConvSpec
    made: NativeMatrix
    conv_LC: Vector
    conv_bias_C: Vector | None
    convolution: Convolution

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
            target=Buffer.NARROW,
            index=index,
            weight=ctypes.addressof(self.convolution),
        )


NativeRecurrent = NativeShortConv | NativeDeltaNet | NativeMamba2


def load_recurrent(
    spec: RecurrentSpec,
    slices: RecurrentSlices,
    load: Load,
    load_vector: Callable[[Slices], Vector | None],
    norm_epsilon: float,
) -> NativeRecurrent:
    """That of these slices."""
    taps = load_vector(slices.conv)
    assert taps is not None, "every recurrent layer has a convolution"
    conv_LC = np.ascontiguousarray(taps.reshape(spec.conv_channels, spec.taps).T)
    made = load(slices.made, slices.made_bias)
    if isinstance(spec, DeltaNetSpec):
        return NativeDeltaNet(spec, made, conv_LC, load_vector, slices, norm_epsilon)
    if isinstance(spec, Mamba2Spec):
        return NativeMamba2(spec, made, conv_LC, load_vector, slices, norm_epsilon)
    return _short_conv(spec, made, conv_LC, load_vector(slices.conv_bias))


def _short_conv(spec: ShortConvSpec, made: NativeMatrix, conv_LC: Vector, bias_C: Vector | None) -> NativeShortConv:
    channels = spec.channels
    return NativeShortConv(
        spec=spec,
        made=made,
        conv_LC=conv_LC,
        conv_bias_C=bias_C,
        convolution=Convolution(
            weight=conv_LC.ctypes.data,
            bias=None if bias_C is None else bias_C.ctypes.data,
            channels=channels,
            taps=spec.taps,
            column=2 * channels,
            out_column=0,
            times_before=0,
            times_after=channels,
            silu=False,
        ),
    )
