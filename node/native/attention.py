"""The weights of plain attention as the kernels have them, and what is done with them for the rows of a step.

Shapes: E numbers of a value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerline.models.spec import AttentionSpec
from node.kernels.structures import Operation, OperationKind
from node.native.matrices import NativeMatrix
from node.native.operations import Buffer, Operations, head_norm, product, turn


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeAttention:
    """Those of a layer beside its output matrix, and the number of its rotation among the stage's."""

    spec: AttentionSpec
    norm_epsilon: float
    qkv: NativeMatrix
    q_norm: NDArray[np.float32] | None  # of a head, or of all heads
    k_norm: NDArray[np.float32] | None
    rotation: int | None
    sinks: NDArray[np.float32] | None  # of each head
    value_order_E: NDArray[np.int32] | None  # where values are keys: which number of a key each of theirs is

    @property
    def row_matrices(self) -> tuple[NativeMatrix, ...]:
        """Those that all rows of a step are multiplied with."""
        return (self.qkv,)

    @property
    def copied_numbers(self) -> int:
        """Numbers of queries, keys and values where no matrix makes the last of these; else 0."""
        if self.value_order_E is None:
            return 0
        return self.spec.query_numbers + self.spec.key_numbers + self.spec.value_numbers

    def mixed(self, source: Buffer, index: int, carried: Operations) -> Operations:
        """What the output matrix takes of the rows of `source`, in Buffer.NARROW; `index` is the layer's number.

        `carried` are done as soon as the keys and values are in Buffer.WIDE.
        """
        spec = self.spec
        yield product(source, Buffer.WIDE, self.qkv)
        yield from self._turned()
        if (growth := spec.query_growth) is not None:
            yield Operation(
                kind=OperationKind.GROW,
                target=Buffer.WIDE,
                index=growth.length,
                count=growth.offset,
                size=spec.query_numbers,
                number=growth.factor,
            )
        yield from carried
        reads = spec.source is not None
        yield Operation(kind=OperationKind.ATTEND, source=Buffer.WIDE, target=Buffer.NARROW, index=index, flag=reads)
        if spec.output_gate:
            yield self._opened()

    def _turned(self) -> Operations:
        """Makes values of keys where they are those; norms and turns what is to be normed and turned, in place."""
        spec, epsilon = self.spec, self.norm_epsilon
        if self.value_order_E is not None:
            yield Operation(
                kind=OperationKind.HEAD_COPY,
                target=Buffer.WIDE,
                index=spec.heads,
                count=spec.kv_heads,
                size=spec.head_dim,
                weight=self.value_order_E.ctypes.data,
            )
        if spec.value_norm:
            first = spec.heads + spec.kv_heads
            yield head_norm(Buffer.WIDE, first, spec.kv_heads, spec.value_dim, None, epsilon)
        sides = ((0, spec.heads, self.q_norm), (spec.heads, spec.kv_heads, self.k_norm))
        for first, heads, weight in sides:
            if weight is not None:
                together = len(weight) // spec.head_dim  # heads that are normed as one
                yield head_norm(Buffer.WIDE, first // together, heads // together, len(weight), weight, epsilon)
        made_keys = spec.kv_heads if spec.source is None else 0
        if self.rotation is not None:
            yield turn(Buffer.WIDE, self.rotation, spec.heads + made_keys, spec.head_dim)
        if spec.qk_norm == "turned_heads":
            yield head_norm(Buffer.WIDE, 0, spec.heads + made_keys, spec.head_dim, None, epsilon)

    def _opened(self) -> Operation:
        """Multiplies what heads give by the sigmoid of their gate, which is behind queries, keys and values."""
        spec = self.spec
        return Operation(
            kind=OperationKind.TIMES_SIGMOID,
            source=Buffer.WIDE,
            target=Buffer.NARROW,
            index=spec.query_numbers + spec.key_numbers + spec.value_numbers,
            size=spec.output_numbers,
        )
