"""The weights of a Mamba 2 layer as the kernels have them, and what is done with them for the rows of a step.

Shapes: C channels, L taps, H heads, O numbers that the second matrix takes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from layerline.models.recurrent import Mamba2Spec
from node.kernels.recurrent_structures import Convolution, Mamba2
from node.kernels.structures import Operation, OperationKind
from node.native.matrices import NativeMatrix
from node.native.operations import Buffer, Operations, product
from node.slices.feed_forward_slices import Slices
from node.slices.recurrent_slices import RecurrentSlices

Vector = NDArray[np.float32]


class NativeMamba2:
    """Those of a layer beside its second matrix; its structures point into what is here."""

    def __init__(
        self,
        spec: Mamba2Spec,
        made: NativeMatrix,
        conv_LC: Vector,
        load_vector: Callable[[Slices], Vector | None],
        slices: RecurrentSlices,
        norm_epsilon: float,
    ) -> None:
        def vector(own: Slices) -> Vector:
            loaded = load_vector(own)
            assert loaded is not None, "every Mamba 2 layer has it"
            return loaded

        self.spec = spec
        self.made = made
        self._norm_O, self._norm_epsilon = vector(slices.norm), norm_epsilon
        bias_C = load_vector(slices.conv_bias)
        decay_H, skip_H, step_bias_H = (vector(own) for own in (slices.decay, slices.skip, slices.step_bias))
        self._kept = conv_LC, bias_C, decay_H, skip_H, step_bias_H
        self._convolution = Convolution(
            weight=conv_LC.ctypes.data,
            bias=None if bias_C is None else bias_C.ctypes.data,
            channels=spec.conv_channels,
            taps=spec.taps,
            column=spec.output_numbers,
            out_column=spec.output_numbers,
            times_before=-1,
            times_after=-1,
            silu=True,
        )
        self._structure = Mamba2(
            decay=decay_H.ctypes.data,
            skip=skip_H.ctypes.data,
            step_bias=step_bias_H.ctypes.data,
            state_offset=(spec.taps - 1) * spec.conv_channels,
            heads=spec.heads,
            head_dim=spec.head_dim,
            groups=spec.groups,
            state_dim=spec.state_dim,
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
        yield Operation(
            kind=OperationKind.MAMBA2,
            source=Buffer.WIDE,
            target=Buffer.NARROW,
            index=index,
            weight=ctypes.addressof(self._structure),
        )
        yield Operation(
            kind=OperationKind.GATED_NORM,
            source=Buffer.WIDE,
            target=Buffer.NARROW,
            count=self.spec.groups,
            size=self.spec.output_numbers // self.spec.groups,
            number=self._norm_epsilon,
            weight=self._norm_O.ctypes.data,
        )
