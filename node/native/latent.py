"""The weights of attention with a latent as the kernels have them, and what is done with them for the rows of a step.

node/model/latent_attention.py tells the same for torch.

Where a file has what makes keys and values of latents in one matrix, that for keys is multiplied the other way round,
and both are held in plain numbers; where it has them apart they lie as they are multiplied, and are held as other
matrices.

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

from layerline.models.held import FLOATS, PANEL_ROWS, matrix_bytes, turned_storage
from layerline.models.spec import AttentionSpec
from node.kernels.engine import aligned_bytes, pack
from node.kernels.library import Library
from node.kernels.structures import Matrix, Operation, OperationKind, Segment
from node.native.feed_forward import Load
from node.native.matrices import NativeMatrix, Panels, load_vector
from node.native.operations import Buffer, Operations, norm, product, turn
from node.slices.feed_forward_slices import Slices
from node.slices.latent_slices import LatentSlices
from node.slices.stored_rows import in_storage
from node.slices.tensor_source import TensorSource

_NUMBERS = {4: np.uint32, 2: np.uint16}  # by their bytes; what they are is no matter here


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

    spec: AttentionSpec
    rotation: int  # its number among the stage's
    query_down: NativeMatrix | None
    query_norm: NDArray[np.float32] | None
    queries: NativeMatrix
    latent: NativeMatrix
    latent_norm: NDArray[np.float32]
    keys: HeadMatrices  # [L, P] of each head
    values: HeadMatrices  # [E, L]

    @property
    def row_matrices(self) -> tuple[NativeMatrix, ...]:
        """Those that all rows of a step are multiplied with."""
        return tuple(matrix for matrix in (self.query_down, self.queries, self.latent) if matrix is not None)

    def mixed(self, source: Buffer, index: int) -> Operations:
        """What the output matrix takes of the rows of `source`, in Buffer.NARROW; `index` is the layer's number.

        Of each query and of the key the numbers that are turned come first.
        """
        spec, latent = self.spec, self.spec.latent
        assert latent is not None, "it has weights of a latent"
        made_of = source
        if self.query_down is not None and self.query_norm is not None:
            made_of = Buffer.NARROW
            yield product(source, made_of, self.query_down)
            yield norm(made_of, made_of, self.query_norm, latent.norm_epsilon)
        yield product(made_of, Buffer.WIDE, self.queries)
        yield product(source, Buffer.KEY, self.latent)
        yield turn(Buffer.WIDE, self.rotation, spec.heads, spec.made_query_dim)
        yield turn(Buffer.KEY, self.rotation, 1, spec.head_dim)
        yield norm(Buffer.LATENT, Buffer.LATENT, self.latent_norm, latent.norm_epsilon)
        yield _head_product(Buffer.WIDE, Buffer.READING, self.keys, spec.heads, kept=spec.turned_dim)
        yield Operation(kind=OperationKind.ATTEND, source=Buffer.READING, target=Buffer.READ, index=index)
        yield _head_product(Buffer.READ, Buffer.NARROW, self.values, spec.heads)


def load_latent(
    library: Library,
    source: TensorSource,
    spec: AttentionSpec,
    rotation: int,
    slices: LatentSlices,
    weights: str,
    load: Load,
) -> NativeLatent:
    """That of these slices; `load` makes a matrix as others are held, in `weights`."""
    assert spec.latent is not None, "it has slices of a latent"
    if spec.latent.apart:
        made: Sequence[Panels] = [_only_panels(load((part,), ())) for part in slices.up]
    else:
        made = _turned_round(library, source, spec, slices.up, weights)
    keys, values = (HeadMatrices(panels, spec.heads) for panels in made)
    return NativeLatent(
        spec=spec,
        rotation=rotation,
        query_down=load(slices.query_down, ()) if slices.query_down else None,
        query_norm=load_vector(source, slices.query_norm) if slices.query_norm else None,
        queries=load(slices.queries, ()),
        latent=load(slices.latent, ()),
        latent_norm=load_vector(source, slices.latent_norm),
        keys=keys,
        values=values,
    )


def _head_product(source: Buffer, target: Buffer, matrices: HeadMatrices, heads: int, kept: int = 0) -> Operation:
    return Operation(
        kind=OperationKind.HEAD_PRODUCT,
        source=source,
        target=target,
        index=kept,
        count=heads,
        size=kept + matrices.inputs,
        matrix=matrices.structures,
    )


def _only_panels(matrix: NativeMatrix) -> Panels:
    (panels,) = matrix.parts
    return panels


def _turned_round(
    library: Library, source: TensorSource, spec: AttentionSpec, slices: Slices, weights: str
) -> Sequence[Panels]:
    """What makes keys, transposed, and what makes values, of the matrix that makes both."""
    assert spec.latent is not None, "it has a latent"
    (wanted,) = slices
    storage = turned_storage(source.storage(wanted), weights)
    made_OL = np.empty(wanted.shape, _NUMBERS[FLOATS[storage]])
    for block in source.blocks(wanted):
        numbers = in_storage(block, storage).view(made_OL.dtype)
        made_OL[block.first_row : block.first_row + len(numbers)] = numbers
    made_NML = made_OL.reshape(spec.heads, -1, spec.value_dim)
    keys_NPL, values_NEL = np.split(made_NML, [spec.latent.plain_dim], axis=1)
    return [_panels(library, source, storage, part) for part in (keys_NPL.transpose(0, 2, 1), values_NEL)]


def _panels(library: Library, source: TensorSource, storage: str, numbers_NMI: NDArray[Any]) -> Panels:
    """The matrices of all heads, one below the other."""
    columns = numbers_NMI.shape[2]
    numbers_OI = np.ascontiguousarray(numbers_NMI).reshape(-1, columns)
    memory = aligned_bytes(matrix_bytes(storage, len(numbers_OI), columns))
    pack(library, storage, numbers_OI.view(np.uint8), columns, 0, memory)
    source.count(memory.nbytes)
    return Panels(storage=storage, rows=len(numbers_OI), columns=columns, memory=memory)
