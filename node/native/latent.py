"""The weights of attention with a latent as the kernels have them.

Where a file has what makes keys and values of latents in one matrix, that for keys is multiplied the other way round,
and both are held in float32; where it has them apart they lie as they are multiplied, and are held as other matrices.

Shapes: N heads, M rows of a head, L numbers of the latent, P numbers of a query that are not turned, E numbers of a
head's value.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerline.models.held import PANEL_ROWS, matrix_bytes
from layerline.models.spec import AttentionSpec
from node.kernels.engine import aligned_bytes, pack
from node.kernels.library import Library
from node.kernels.structures import Matrix, Segment
from node.native.feed_forward import Load
from node.native.matrices import NativeMatrix, Panels, load_vector
from node.slices.feed_forward_slices import Slices
from node.slices.latent_slices import LatentSlices
from node.slices.tensor_source import TensorSource

TRANSPOSED = "F32"  # what both are held in where one of them has to be turned round


class HeadMatrices:
    """A matrix of each head, whole panels of one; `structures` points into what is held here."""

    def __init__(self, panels: Panels, heads: int) -> None:
        rows = panels.rows // heads
        assert rows % PANEL_ROWS == 0, "a head's matrix is whole panels"
        head_bytes = matrix_bytes(panels.storage, rows, panels.columns)
        self.outputs, self.inputs = rows, panels.columns
        self._panels = panels
        self._segments = (Segment * heads)()
        self.structures: Any = (Matrix * heads)()
        for head in range(heads):
            segment = panels.segment(0)
            segment.panels, segment.rows = panels.memory.ctypes.data + head * head_bytes, rows
            self._segments[head] = segment
            self.structures[head] = Matrix(
                segments=ctypes.pointer(self._segments[head]), inputs=panels.columns, segment_count=1
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeLatent:
    """Those of a layer; without a latent of queries `query_down` and `query_norm` are None."""

    query_down: NativeMatrix | None
    query_norm: NDArray[np.float32] | None
    queries: NativeMatrix
    latent: NativeMatrix
    latent_norm: NDArray[np.float32]
    keys: HeadMatrices  # [L, P] of each head
    values: HeadMatrices  # [E, L]

    @property
    def matrices(self) -> tuple[NativeMatrix, ...]:
        """Those that whole rows are multiplied with."""
        return tuple(matrix for matrix in (self.query_down, self.queries, self.latent) if matrix is not None)


def load_latent(
    library: Library, source: TensorSource, spec: AttentionSpec, slices: LatentSlices, load: Load
) -> NativeLatent:
    """That of these slices; `load` makes a matrix as others are held."""
    assert spec.latent is not None, "it has slices of a latent"
    if spec.latent.apart:
        made: Sequence[Panels] = [_only_panels(load((part,), ())) for part in slices.up]
    else:
        made = _turned_round(library, source, spec, slices.up)
    keys, values = (HeadMatrices(panels, spec.heads) for panels in made)
    return NativeLatent(
        query_down=load(slices.query_down, ()) if slices.query_down else None,
        query_norm=load_vector(source, slices.query_norm) if slices.query_norm else None,
        queries=load(slices.queries, ()),
        latent=load(slices.latent, ()),
        latent_norm=load_vector(source, slices.latent_norm),
        keys=keys,
        values=values,
    )


def _only_panels(matrix: NativeMatrix) -> Panels:
    (panels,) = matrix.parts
    return panels


def _turned_round(library: Library, source: TensorSource, spec: AttentionSpec, slices: Slices) -> Sequence[Panels]:
    """What makes keys, transposed, and what makes values, of the matrix that makes both."""
    assert spec.latent is not None, "it has a latent"
    (wanted,) = slices
    made_OL = np.empty(wanted.shape, np.float32)
    for block in source.blocks(wanted):
        numbers = block.to_float32()
        made_OL[block.first_row : block.first_row + len(numbers)] = numbers
    made_NML = made_OL.reshape(spec.heads, -1, spec.value_dim)
    keys_NPL, values_NEL = np.split(made_NML, [spec.latent.plain_dim], axis=1)
    parts = (keys_NPL.transpose(0, 2, 1), values_NEL)
    return [_panels(library, source, part.reshape(-1, part.shape[2])) for part in parts]


def _panels(library: Library, source: TensorSource, numbers_OI: NDArray[np.float32]) -> Panels:
    rows, columns = numbers_OI.shape
    memory = aligned_bytes(matrix_bytes(TRANSPOSED, rows, columns))
    pack(library, TRANSPOSED, numbers_OI.view(np.uint8), columns, 0, memory)
    source.count(memory.nbytes)
    return Panels(storage=TRANSPOSED, rows=rows, columns=columns, memory=memory)
