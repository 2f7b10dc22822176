"""The heads of a Mamba 2 layer as the kernels have them, and what is done with them for the rows of a step.

Shapes: H heads, O numbers that the second matrix takes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from layerline.models.recurrent import Mamba2Spec
from node.kernels.recurrent_structures import Mamba2
from node.kernels.structures import Operation, OperationKind
from node.native.operations import Buffer, Operations
from node.slices.feed_forward_slices import Slices
from node.slices.recurrent_slices import RecurrentSlices

Vector = NDArray[np.float32]


class NativeMamba2:
    """The heads of a layer; their structure points into what is here."""

    def __init__(
        self,
        spec: Mamba2Spec,
        slices: RecurrentSlices,
        load_vector: Callable[[Slices], Vector],
        norm_epsilon: float,
    ) -> None:
        self._spec = spec
        self._norm_O, self._norm_epsilon = load_vector(slices.norm), norm_epsilon
        decay_H, skip_H, step_bias_H = (load_vector(own) for own in (slices.decay, slices.skip, slices.step_bias))
        self._kept = decay_H, skip_H, step_bias_H
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

    def mixed(self, index: int) -> Operations:
        """What the second matrix takes, in Buffer.NARROW, of the rows in Buffer.WIDE; `index` is the layer's number."""
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
            count=self._spec.groups,
            size=self._spec.output_numbers // self._spec.groups,
            number=self._norm_epsilon,
            weight=self._norm_O.ctypes.data,
        )
