"""The layers of a stage on a CPU, computed by the kernels: rows in, rows or logits out, in buffers that are kept.

Shapes: T rows, C hidden, N rows of which logits are wanted, V vocabulary.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from layerline.frames import Span, TensorBytes
from layerline.models.sizes import LOGITS_ROWS
from layerline.models.spec import ModelSpec
from layerline.models.storage import to_float32
from node.kernels.engine import Engine, aligned_bytes, aligned_rows
from node.kernels.structures import Rows, Step, Work
from node.native.kv_pages import KvPages, StepSpans
from node.native.matrices import NativeMatrix
from node.native.program import Buffer, NativeLayer, Passage, Program, logits_program
from node.native.weights import NativeWeights
from node.slices.stored_rows import rounded_to_bfloat16

DIGITS = {"fast": 1, "standard": 2, "full": 3}  # of base 256, in which rows are multiplied


class RankSums(Protocol):
    """What brings a rank's parts of sums together with those of the others."""

    vocabulary: range
    """The tokens whose rows this rank's embedding has."""

    def add_up_(self, x_TC: NDArray[np.float32]) -> None:
        """Makes rows, in place, the sum of those of all ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """What the buffers of a stage are made for."""

    max_rows: int
    precision: str


class NativeLayers:
    """Layers in memory. `part` describes what this rank has of the model; `ranks` is None for a rank by itself."""

    def __init__(
        self,
        engine: Engine,
        part: ModelSpec,
        weights: NativeWeights,
        pages: KvPages,
        sizes: Sizes,
        ranks: RankSums | None = None,
    ) -> None:
        self._engine = engine
        self._weights = weights
        self._pages = pages
        self._ranks = ranks
        self._program = Program(weights.layers, part.norm_epsilon, in_parts=ranks is not None)
        self._logits: Passage | None = None
        if weights.output is not None:
            assert weights.final_norm_C is not None
            self._logits = logits_program(weights.final_norm_C, part.norm_epsilon, weights.output)
        self._buffers = _Buffers(engine, part, weights, pages, sizes)

    def embedded(self, ids_T: NDArray[np.int32]) -> NDArray[np.float32]:
        """The first residual [T, C] of these tokens; only where the first layer is."""
        assert self._weights.embedding is not None, "this stage has no embedding"
        x_TC = self._buffers.residual_TC[: len(ids_T)]
        if self._ranks is None:
            self._weights.embedding.look_up(self._engine, ids_T, x_TC)
            return x_TC
        rows_T = ids_T - self._ranks.vocabulary.start
        last_row = len(self._ranks.vocabulary) - 1
        self._weights.embedding.look_up(self._engine, rows_T.clip(0, last_row).astype(np.int32), x_TC)
        x_TC[(rows_T < 0) | (rows_T > last_row)] = 0
        self._ranks.add_up_(x_TC)
        return x_TC

    def residual(self, tensor: TensorBytes) -> NDArray[np.float32]:
        """The residual [T, C] that another stage made."""
        x_TC = self._buffers.residual_TC[: tensor.shape[0]]
        storage = "BF16" if tensor.dtype == "bfloat16" else "F32"
        x_TC[...] = to_float32(storage, np.frombuffer(tensor.data, np.uint8), tensor.shape)
        return x_TC

    def layers_(self, x_TC: NDArray[np.float32], spans: Sequence[Span]) -> None:
        """Passes the residual, which `embedded` or `residual` gave, through the layers, in place."""
        placed = self._pages.spans(spans)
        turns = [_turns(frequencies_P, placed.positions_T) for frequencies_P in self._weights.frequencies]
        step = _step(placed, len(x_TC), turns)
        for passage in self._program.passages:
            self._engine.run(passage.operations, passage.count, self._buffers.work, step)
            if passage.is_part:
                assert self._ranks is not None
                self._ranks.add_up_(self._buffers.part_TC[: len(x_TC)])

    def logits(self, x_TC: NDArray[np.float32], rows: Sequence[int]) -> NDArray[np.float32]:
        """Logits [N, V] of at most LOGITS_ROWS rows, until the next call; only where the last layer is."""
        assert self._logits is not None, "this stage has no output"
        self._buffers.picked_NC[: len(rows)] = x_TC[list(rows)]
        step = Step(rows=len(rows), span_count=0)
        self._engine.run(self._logits.operations, self._logits.count, self._buffers.logits_work, step)
        return self._buffers.logits_NV[: len(rows)]

    def to_bytes(self, x_TC: NDArray[np.float32], dtype: str) -> TensorBytes:
        """The residual as it goes to the next stage."""
        data = x_TC.tobytes() if dtype == "float32" else rounded_to_bfloat16(x_TC).tobytes()
        return TensorBytes(dtype=dtype, shape=x_TC.shape, data=data)


class _Buffers:
    """Memory for steps of so many rows, and the structures that point into it."""

    def __init__(self, engine: Engine, part: ModelSpec, weights: NativeWeights, pages: KvPages, sizes: Sizes) -> None:
        rows, digits = sizes.max_rows, DIGITS[sizes.precision]
        matrices = [matrix for layer in weights.layers for matrix in _matrices(layer)]
        outputs = max(max(matrix.outputs for matrix in matrices), 1)
        inputs = max(matrix.inputs for matrix in matrices)
        logits_rows = min(LOGITS_ROWS, rows)
        vocabulary = weights.output.outputs if weights.output is not None else 0
        self.residual_TC = aligned_rows(rows, part.hidden)
        self.part_TC = aligned_rows(rows, part.hidden)
        self.picked_NC = aligned_rows(logits_rows, part.hidden)
        self.logits_NV = aligned_rows(logits_rows, vocabulary)
        made = {
            Buffer.RESIDUAL: self.residual_TC,
            Buffer.NORMED: aligned_rows(rows, part.hidden),
            Buffer.WIDE: aligned_rows(rows, outputs),
            Buffer.NARROW: aligned_rows(rows, inputs),
            Buffer.PART: self.part_TC,
            Buffer.LOGITS: self.logits_NV,
        }
        columns = max(inputs, part.hidden)
        self._prepared = [
            aligned_bytes(engine.prepared_bytes(rows, columns, digits=digits, floats=floats))
            for floats in (False, True)
        ]
        self._made = [made, {**made, Buffer.RESIDUAL: self.picked_NC}]
        self._states = pages.states
        self.work, self.logits_work = (self._work(buffers, digits) for buffers in self._made)

    def _work(self, buffers: dict[Buffer, NDArray[np.float32]], digits: int) -> Work:
        rows = (Rows * len(Buffer))(
            *(Rows(data=buffers[name].ctypes.data, stride=buffers[name].shape[1]) for name in Buffer)
        )
        prepared, prepared_floats = (memory.ctypes.data for memory in self._prepared)
        return Work(
            buffers=rows, layers=self._states, prepared=prepared, prepared_floats=prepared_floats, digits=digits
        )


def _matrices(layer: NativeLayer) -> tuple[NativeMatrix, ...]:
    return layer.qkv, layer.attention_output, layer.gate_up, layer.down


def _turns(frequencies_P: NDArray[np.float32], positions_T: NDArray[np.int64]) -> NDArray[np.float32]:
    """Cosine and sine of every pair of every row, side by side."""
    angles_TP = positions_T.astype(np.float32)[:, None] * frequencies_P
    turns_TP2 = np.empty((*angles_TP.shape, 2), np.float32)
    np.cos(angles_TP, out=turns_TP2[..., 0])
    np.sin(angles_TP, out=turns_TP2[..., 1])
    return turns_TP2


def _step(spans: StepSpans, rows: int, turns: Sequence[NDArray[np.float32]]) -> Step:
    """For one call of the kernels; the spans and turns must live as long."""
    places = (ctypes.c_void_p * max(1, len(turns)))(*(array.ctypes.data for array in turns))
    return Step(rows=rows, span_count=spans.count, spans=spans.structures, turns=places)
