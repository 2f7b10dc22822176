"""The weights of a recurrent layer as the kernels have them, and what is done with them for the rows of a step.

Shapes: C channels, L taps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Protocol

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


class Heads(Protocol):
    """What a recurrent layer does behind its convolution, each head with a state of its own."""

    def mixed(self, index: int) -> Operations:
        """What the second matrix takes, in Buffer.NARROW, of the rows in Buffer.WIDE; `index` is the layer's number."""


class NativeConvolution:
    """The convolution of a layer; `structure` points into what is here."""

    def __init__(self, spec: RecurrentSpec, taps_CL: Vector, bias_C: Vector | None) -> None:
        weight_LC = np.ascontiguousarray(taps_CL.reshape(spec.conv_channels, spec.taps).T)
        self._kept = weight_LC, bias_C
        is_gated = isinstance(spec, ShortConvSpec)  # by b before, the first numbers of a row, and by c after it
        column = 2 * spec.channels if isinstance(spec, ShortConvSpec) else 0
        if isinstance(spec, Mamba2Spec):
            column = spec.output_numbers  # behind the gate
        self.structure = Convolution(
            weight=weight_LC.ctypes.data,
            bias=None if bias_C is None else bias_C.ctypes.data,
            channels=spec.conv_channels,
            taps=spec.taps,
            column=column,
            out_column=0 if is_gated else column,
            times_before=0 if is_gated else -1,
            times_after=spec.conv_channels if is_gated else -1,
            silu=not is_gated,
        )


class NativeRecurrent:
    """Those of a layer beside its second matrix; a short convolution has no `heads`."""

    def __init__(self, made: NativeMatrix, convolution: NativeConvolution, heads: Heads | None) -> None:
        self.row_matrices = (made,)
        self._made = made
        self._convolution = convolution
        self._heads = heads

    def mixed(self, source: Buffer, index: int) -> Operations:
        """What the second matrix takes of the rows of `source`, in Buffer.NARROW; `index` is the layer's number."""
        yield product(source, Buffer.WIDE, self._made)
        yield Operation(
            kind=OperationKind.CONVOLVE,
            source=Buffer.WIDE,
            target=Buffer.NARROW if self._heads is None else Buffer.WIDE,
            index=index,
            weight=ctypes.addressof(self._convolution.structure),
        )
        if self._heads is not None:
            yield from self._heads.mixed(index)


def load_recurrent(
    spec: RecurrentSpec,
    slices: RecurrentSlices,
    load: Load,
    load_vector: Callable[[Slices], Vector | None],
    norm_epsilon: float,
) -> NativeRecurrent:
    """That of these slices."""

    def vector(own: Slices) -> Vector:
        loaded = load_vector(own)
        assert loaded is not None, "every such layer has it"
        return loaded

    heads: Heads | None = None
    if isinstance(spec, DeltaNetSpec):
        heads = NativeDeltaNet(spec, slices, vector, norm_epsilon)
    elif isinstance(spec, Mamba2Spec):
        heads = NativeMamba2(spec, slices, vector, norm_epsilon)
    convolution = NativeConvolution(spec, vector(slices.conv), load_vector(slices.conv_bias))
    return NativeRecurrent(load(slices.made, slices.made_bias), convolution, heads)
