"""One product by itself, such as is measured or tested.

Shapes: T rows, I inputs, O outputs.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from node.kernels.engine import Engine, aligned_bytes, aligned_rows
from node.kernels.library import chosen_instruction_set, library
from node.kernels.structures import TILE, Operation, OperationKind, Rows, Step, Work
from node.native.matrices import NativeMatrix, Panels

DIGITS = 2


class OneProduct:
    """Rows [T, I] times a matrix, as integers of so many digits."""

    def __init__(
        self, rows_TI: NDArray[np.float32], matrix: NativeMatrix, engine: Engine, digits: int = DIGITS
    ) -> None:
        rows, inputs = rows_TI.shape
        assert inputs == matrix.inputs
        self.matrix_bytes = matrix.nbytes
        self._matrix, self._engine = matrix, engine
        self._in_TI, self._out_TO = np.ascontiguousarray(rows_TI, np.float32), aligned_rows(rows, matrix.outputs)
        self._prepared = [
            aligned_bytes(engine.prepared_bytes(rows, inputs, digits=digits, floats=floats)) for floats in (False, True)
        ]
        prepared, prepared_floats = (place.ctypes.data for place in self._prepared)
        buffers = [Rows(data=each.ctypes.data, stride=each.shape[1]) for each in (self._in_TI, self._out_TO)]
        self._work = Work(
            buffers=(Rows * 2)(*buffers), prepared=prepared, prepared_floats=prepared_floats, digits=digits
        )
        own = ctypes.pointer(matrix.structure)
        self._operations = (Operation * 1)(Operation(kind=OperationKind.PRODUCT, source=0, target=1, matrix=own))
        self._step = Step(rows=rows, span_count=0)

    @classmethod
    def of_ones(cls, rows: int, outputs: int, inputs: int, storage: str, threads: int) -> OneProduct:
        """For measuring: rows of ones, a matrix of zeros."""
        kernels = library()
        memory = aligned_bytes(-(-outputs // TILE) * kernels.panel_bytes(storage, inputs))
        memory.fill(0)  # until somebody writes them, zeros are one page of memory
        matrix = NativeMatrix([Panels(storage=storage, rows=outputs, columns=inputs, memory=memory)])
        return cls(np.ones((rows, inputs), np.float32), matrix, Engine(kernels, chosen_instruction_set(), threads))

    def multiply(self) -> NDArray[np.float32]:
        """The product [T, O], which the next call overwrites."""
        self._engine.run(self._operations, 1, self._work, self._step)
        return self._out_TO
