"""Experts that lie on the CPU beside a device: their rows come from there, are computed by the kernels, and go back.

Their weights are held as they are stored. Shapes: T rows, C hidden, I inputs, O outputs, E = 2F.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.errors import StageFailedError
from layerline.models.feed_forward_spec import Activation, FeedForwardSpec
from node.kernels.engine import Engine, aligned_bytes, aligned_rows
from node.kernels.library import KernelsMissingError, chosen_instruction_set, library
from node.kernels.structures import Operation, OperationKind, Rows, Step, Work
from node.model.feed_forward import gated
from node.native.matrices import NativeMatrix, load_matrix
from node.slices.feed_forward_slices import FeedForwardSlices, Slices
from node.slices.tensor_source import TensorSource

STANDARD_DIGITS, FULL_DIGITS = 2, 3


@dataclass(frozen=True, slots=True)
class KernelLinear:
    """A matrix on the CPU, which `engine` multiplies rows with as integers of so many digits."""

    matrix: NativeMatrix
    engine: Engine
    digits: int

    def __call__(self, x_TI: Tensor) -> Tensor:
        """The product [T, O] in float32 of rows in float32 on the CPU."""
        in_TI = x_TI.contiguous().numpy()
        rows, inputs = in_TI.shape
        out_TO = aligned_rows(rows, self.matrix.outputs)
        prepared = [
            aligned_bytes(self.engine.prepared_bytes(rows, inputs, digits=self.digits, floats=floats))
            for floats in (False, True)
        ]
        buffers = (Rows * 2)(*(Rows(data=each.ctypes.data, stride=each.shape[1]) for each in (in_TI, out_TO)))
        work = Work(
            buffers=buffers,
            prepared=prepared[0].ctypes.data,
            prepared_floats=prepared[1].ctypes.data,
            digits=self.digits,
        )
        own = ctypes.pointer(self.matrix.structure)
        operations = (Operation * 1)(Operation(kind=OperationKind.PRODUCT, source=0, target=1, matrix=own))
        self.engine.run(operations, 1, work, Step(rows=rows, span_count=0))
        return torch.from_numpy(out_TO)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertBeside:
    """An expert of rows in float32 on the CPU."""

    activation: Activation
    gate_up: KernelLinear
    down: KernelLinear

    def __call__(self, x_TC: Tensor) -> Tensor:
        """What it makes of them [T, C]."""
        both_TE = self.gate_up(x_TC)
        width = both_TE.shape[1] // 2
        return self.down(gated(self.activation, both_TE.narrow(1, 0, width), both_TE.narrow(1, width, width)))


class CpuBeside:
    """The CPU beside a device, which computes with so many threads; loads experts for it."""

    def __init__(self, threads: int, *, is_exact: bool) -> None:
        """`is_exact` is whether the device computes in float32. StageFailedError where there are no kernels."""
        try:
            self._engine = Engine(library(), chosen_instruction_set(), threads)
        except KernelsMissingError as missing:
            message = f"The plan has experts on the CPU, but there are no kernels: {missing}"
            raise StageFailedError(message, remedy="Restart the node, and plan again.") from missing
        self._digits = FULL_DIGITS if is_exact else STANDARD_DIGITS

    def expert(self, source: TensorSource, spec: FeedForwardSpec, slices: FeedForwardSlices) -> ExpertBeside:
        """One of these slices."""
        return ExpertBeside(
            activation=spec.activation,
            gate_up=self._linear(source, slices.gate_up, slices.gate_up_bias),
            down=self._linear(source, slices.down, slices.down_bias),
        )

    def _linear(self, source: TensorSource, slices: Slices, bias: Slices) -> KernelLinear:
        return KernelLinear(load_matrix(library(), source, slices, "stored", bias), self._engine, self._digits)
