"""The layers of a stage on a CPU, computed by the kernels: rows in, rows or logits out, in buffers that are kept.

Shapes: T rows, C hidden, N rows of which logits are wanted, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from layerline.frames import Span, TensorBytes
from layerline.models.row_layout import StageRows
from layerline.models.spec import AttentionSpec, ModelSpec
from layerline.models.workspace import LOGITS_ROWS
from node.kernels.engine import Engine, aligned_bytes, aligned_rows
from node.kernels.structures import Rotation, Rows, Work
from node.native.attention import NativeAttention
from node.native.carrying_program import Carrying
from node.native.experts import experts_of
from node.native.kv_pages import KvPages
from node.native.matrices import NativeMatrix
from node.native.operations import Buffer
from node.native.program import Ends, NativeLayer, Program
from node.native.steps import picking_step, step_of
from node.native.weights import NativeWeights
from node.slices.carried_heads import CarriedHeads

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
    dtype: str  # in which rows go between stages


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """What rows are before and after a stage, and this rank's heads of the layers whose keys and values they carry."""

    rows: StageRows
    heads: Mapping[int, CarriedHeads]


class NativeLayers:
    """Layers in memory. `part` describes what this rank has of the model; `ranks` is None for a rank by itself."""

    def __init__(
        self,
        engine: Engine,
        part: ModelSpec,
        weights: NativeWeights,
        pages: KvPages,
        sizes: Sizes,
        carried: Carried,
        ranks: RankSums | None = None,
    ) -> None:
        self._engine = engine
        self._part = part
        self._final_norm_C = weights.final_norm_C
        self._pages = pages
        self._ranks = ranks
        self._dtype = sizes.dtype
        first_id = 0 if ranks is None else ranks.vocabulary.start
        self._carrying = carrying = Carrying(
            spec=part,
            rows=carried.rows,
            heads=carried.heads,
            inputs=weights.token_inputs,
            first_id=first_id,
            in_parts=ranks is not None,
        )
        ends = Ends(
            spec=part,
            embedding=weights.embedding,
            output=weights.output,
            final_norm_C=weights.final_norm_C,
            first_id=first_id,
            rounded=sizes.dtype == "bfloat16",
            carrying=carrying,
        )
        self._program = Program(weights.layers, ends, in_parts=ranks is not None)
        self._buffers = _Buffers(engine, part, weights, pages, sizes, carrying)
        self._picked: Sequence[int] = ()  # rows of the last step whose logits are in their buffer

    def passed(
        self,
        tensor: TensorBytes,
        spans: Sequence[Span],
        picked: Sequence[int] = (),
        ids: TensorBytes | None = None,
    ) -> NDArray[np.float32]:
        """The residual [T, C] of these rows after the layers, until the next call.

        `picked` are rows whose logits will be asked for, at most LOGITS_ROWS: they are computed on the way.
        """
        step = step_of(tensor.data, spans, picked, self._pages.page_tokens, None if ids is None else ids.data)
        if self._carrying.given_numbers:
            self._buffers.rows_of(Buffer.GIVEN)[: step.rows] = 0.0  # but for what this rank gives
        for passage in self._program.passages:
            self._engine.run(passage.operations, passage.count, self._buffers.work, step)
            if passage.part is not None:
                assert self._ranks is not None
                self._ranks.add_up_(self._buffers.rows_of(passage.part)[: step.rows])
        self._picked = picked
        return self._buffers.residual_TC[: step.rows]

    def logits(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """Logits [N, V] of at most LOGITS_ROWS rows of the last step, until the next call.

        Only where the last layer is.
        """
        passage = self._program.logits
        assert passage is not None, "this stage has no output"
        if rows != self._picked:
            self._engine.run(passage.operations, passage.count, self._buffers.work, picking_step(rows))
            self._picked = rows
        return self._buffers.logits_NV[: len(rows)]

    def normed(self, x_TC: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows of the last step after the norm behind the last layer, of which `node.model.norm` has the formula."""
        assert self._final_norm_C is not None, "this stage has no output"
        centred_TC = x_TC - x_TC.mean(axis=1, keepdims=True) if self._part.norm == "layer" else x_TC
        squares_T1 = np.square(centred_TC).mean(axis=1, keepdims=True)
        normed_TC: NDArray[np.float32] = centred_TC / np.sqrt(squares_T1 + np.float32(self._part.norm_epsilon))
        return normed_TC * self._final_norm_C

    def to_bytes(self, x_TC: NDArray[np.float32]) -> TensorBytes:
        """The residual that `passed` gave, with what it carries, as it goes to the next stage."""
        sent_TN = self._buffers.rows_of(Buffer.SENT)[: len(x_TC)] if self._carrying.sent_numbers else x_TC
        rounded = self._dtype == "bfloat16"
        data = self._buffers.rounded_of(sent_TN.shape).tobytes() if rounded else sent_TN.tobytes()
        return TensorBytes(dtype=self._dtype, shape=sent_TN.shape, data=data)


class _Buffers:
    """Memory for steps of so many rows, and the structures that point into it."""

    def __init__(
        self,
        engine: Engine,
        part: ModelSpec,
        weights: NativeWeights,
        pages: KvPages,
        sizes: Sizes,
        carrying: Carrying,
    ) -> None:
        rows, digits = sizes.max_rows, DIGITS[sizes.precision]
        matrices = [*(matrix for layer in weights.layers for matrix in _matrices(layer)), *carrying.matrices]
        outputs = max(*(matrix.outputs for matrix in matrices), *map(_copied_numbers, weights.layers))
        outputs = max(outputs, 2 * part.token_input)
        taken = aligned_rows(rows, carrying.taken_numbers)
        inputs = max(matrix.inputs for matrix in matrices)
        experts = list(filter(None, (experts_of(layer.feed_forward) for layer in weights.layers)))
        routed = max((each.router.outputs for each in experts), default=0)
        pairs = max((rows * each.pairs_of_a_row for each in experts), default=0)
        width = max((each.widest for each in experts), default=0)
        mixers = {kind.mixer for kind in part.kinds}
        latents = {mixer for mixer in mixers if isinstance(mixer, AttentionSpec) and mixer.latent}
        assert len(latents) <= 1, "a key has its place behind as many queries in every layer"
        latent = next(iter(latents), None)
        reading = aligned_rows(rows, latent.query_numbers + latent.key_numbers if latent else 0)
        logits_rows = min(LOGITS_ROWS, rows)
        vocabulary = weights.output.outputs if weights.output is not None else 0
        self.residual_TC = aligned_rows(rows, part.hidden)
        self.logits_NV = aligned_rows(logits_rows, vocabulary)
        self._rounded = np.zeros(rows * max(part.hidden, carrying.sent_numbers), np.uint16)
        self._made = {
            Buffer.RESIDUAL: self.residual_TC,
            Buffer.NORMED: aligned_rows(rows, part.hidden),
            Buffer.WIDE: aligned_rows(rows, outputs),
            Buffer.NARROW: aligned_rows(rows, inputs),
            Buffer.PART: aligned_rows(rows, part.hidden),
            Buffer.PICKED: aligned_rows(logits_rows, part.hidden),
            Buffer.LOGITS: self.logits_NV,
            Buffer.ROUTED: aligned_rows(rows, routed),
            Buffer.PAIRS: aligned_rows(pairs, part.hidden),
            Buffer.PAIRS_WIDE: aligned_rows(pairs, 2 * width),
            Buffer.PAIRS_NARROW: aligned_rows(pairs, width),
            Buffer.READING: reading,
            Buffer.KEY: reading[:, latent.query_numbers :] if latent else reading,
            Buffer.LATENT: reading[:, latent.query_numbers + latent.turned_dim :] if latent else reading,
            Buffer.READ: aligned_rows(rows, latent.heads * latent.value_dim if latent else 0),
            Buffer.TAKEN: taken,
            Buffer.FIRST: taken[:, part.hidden :],
            Buffer.SENT: aligned_rows(rows, carrying.sent_numbers),
            Buffer.GIVEN: aligned_rows(rows, carrying.given_numbers),
            Buffer.INPUTS: aligned_rows(rows, carrying.input_numbers),
        }
        columns = max(inputs, part.hidden)
        self._prepared = [
            aligned_bytes(
                max(
                    engine.prepared_bytes(rows, columns, digits=digits, floats=floats),
                    engine.prepared_bytes(pairs, max(width, part.hidden), digits=digits, floats=floats),
                )
            )
            for floats in (False, True)
        ]
        self._rotations = weights.rotations
        prepared, prepared_floats = (memory.ctypes.data for memory in self._prepared)
        buffers = [Rows(data=self._made[name].ctypes.data, stride=self._made[name].strides[0] // 4) for name in Buffer]
        rotations = [
            Rotation(frequencies=own.frequencies_P.ctypes.data, pairs=len(own.frequencies_P), amplitude=own.amplitude)
            for own in weights.rotations
        ]
        self.work = Work(
            buffers=(Rows * len(buffers))(*buffers),
            layers=pages.states,
            rotations=(Rotation * len(rotations))(*rotations),
            prepared=prepared,
            prepared_floats=prepared_floats,
            rounded=self._rounded.ctypes.data,
            rotation_count=len(rotations),
            page_tiles=pages.page_tiles,
            digits=digits,
        )

    def rows_of(self, buffer: Buffer) -> NDArray[np.float32]:
        """All rows of a buffer."""
        return self._made[buffer]

    def rounded_of(self, shape: tuple[int, ...]) -> NDArray[np.uint16]:
        """The rounded rows of that shape."""
        return self._rounded[: math.prod(shape)]


def _copied_numbers(layer: NativeLayer) -> int:
    mixer = None if layer.mixing is None else layer.mixing.mixer
    return mixer.copied_numbers if isinstance(mixer, NativeAttention) else 0


def _matrices(layer: NativeLayer) -> tuple[NativeMatrix, ...]:
    """Those that all rows of a step are multiplied with."""
    behind = () if layer.token_branch is None else layer.token_branch.matrices
    mixing = () if layer.mixing is None else (*layer.mixing.mixer.row_matrices, layer.mixing.output)
    return *mixing, *layer.feed_forward.row_matrices, *behind
