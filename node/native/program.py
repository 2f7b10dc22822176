"""What is done for the rows of a step, as a list of operations which the kernels run in one call.

A layer is put together of its parts in the order of the decoder: x ← x + attention(norm(x)), x ← x +
feed_forward(norm(x)). Where a stage has several ranks the list is cut wherever their parts of a sum have to be
brought together.

Shapes: C hidden, N heads, D numbers of a head.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerline.models.spec import LayerSpec
from node.kernels.structures import Operation, OperationKind
from node.native.matrices import NativeMatrix


class Buffer(IntEnum):
    """The rows that operations work on."""

    RESIDUAL = 0
    NORMED = 1
    WIDE = 2  # queries, keys and values; then gate and up
    NARROW = 3  # what attention gives; then what the gate lets through
    PART = 4  # this rank's part of a sum
    PICKED = 5  # the rows of the residual after which logits are wanted
    LOGITS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeLayer:
    """The weights of one layer, and the number of its rotation among the stage's."""

    spec: LayerSpec
    attention_norm_C: NDArray[np.float32]
    qkv: NativeMatrix
    q_norm_D: NDArray[np.float32] | None
    k_norm_D: NDArray[np.float32] | None
    rotation: int | None
    attention_output: NativeMatrix
    feed_forward_norm_C: NDArray[np.float32]
    gate_up: NativeMatrix
    down: NativeMatrix


@dataclass(frozen=True, slots=True)
class Passage:
    """Operations that are run in one call; after it the ranks bring the sum in Buffer.PART together, if `is_part`."""

    operations: Any  # an array of Operation
    count: int
    is_part: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """What comes before and after the layers of a stage.

    Without an embedding rows come from another stage, without an output they go to another, as float32 or, if
    `rounded`, as bfloat16. A rank's embedding begins with the token `first_id`.
    """

    hidden: int
    epsilon: float
    embedding: NativeMatrix | None
    output: NativeMatrix | None
    final_norm_C: NDArray[np.float32] | None
    first_id: int
    rounded: bool


class Program:
    """The operations of a stage: `passages` for a step, `logits` alone for further rows of it. Keeps what they use."""

    def __init__(self, layers: Sequence[NativeLayer], ends: Ends, *, in_parts: bool) -> None:
        self._kept = layers, ends
        ending = list(_logits(ends)) if ends.output is not None else []
        operations = [
            *_beginning(ends, in_parts=in_parts),
            Operation(kind=OperationKind.PLACE),
            *(op for index, layer in enumerate(layers) for op in _layer(layer, index, ends.epsilon, in_parts=in_parts)),
            *ending,
        ]
        if ends.output is None and ends.rounded:
            operations.append(Operation(kind=OperationKind.ROUND, source=Buffer.RESIDUAL, size=ends.hidden))
        self.passages = tuple(_passages(operations))
        self.logits = next(_passages(ending), None)


def _beginning(ends: Ends, *, in_parts: bool) -> Iterator[Operation]:
    """The rows' first residual. Of several ranks each has the embeddings of some tokens, and zeros for the others."""
    if ends.embedding is None:
        yield Operation(kind=OperationKind.TAKE, target=Buffer.RESIDUAL, flag=ends.rounded, size=ends.hidden)
        return
    yield Operation(
        kind=OperationKind.EMBED,
        target=Buffer.PART if in_parts else Buffer.RESIDUAL,
        index=ends.first_id,
        matrix=ctypes.pointer(ends.embedding.structure),
    )
    if in_parts:
        yield Operation(kind=OperationKind.ADD, source=Buffer.PART, target=Buffer.RESIDUAL, flag=True, size=ends.hidden)


def _logits(ends: Ends) -> Iterator[Operation]:
    """Those of the rows that are picked."""
    assert ends.output is not None
    assert ends.final_norm_C is not None
    yield Operation(kind=OperationKind.PICK, source=Buffer.RESIDUAL, target=Buffer.PICKED, size=ends.hidden)
    yield _norm(Buffer.PICKED, ends.final_norm_C, ends.epsilon)
    yield _product(Buffer.NORMED, Buffer.LOGITS, ends.output)


def _layer(layer: NativeLayer, index: int, epsilon: float, *, in_parts: bool) -> Iterator[Operation]:
    attention, width = layer.spec.attention, layer.spec.feed_forward.intermediate
    turned = attention.heads + attention.kv_heads
    yield _norm(Buffer.RESIDUAL, layer.attention_norm_C, epsilon)
    yield _product(Buffer.NORMED, Buffer.WIDE, layer.qkv)
    heads = ((0, attention.heads, layer.q_norm_D), (attention.heads, attention.kv_heads, layer.k_norm_D))
    for first, count, weight_D in heads:
        if weight_D is not None:
            yield Operation(
                kind=OperationKind.HEAD_NORM,
                target=Buffer.WIDE,
                index=first,
                count=count,
                size=attention.head_dim,
                number=epsilon,
                weight=weight_D.ctypes.data,
            )
    if layer.rotation is not None:
        yield Operation(
            kind=OperationKind.TURN,
            target=Buffer.WIDE,
            index=layer.rotation,
            count=turned,
            size=attention.head_dim,
        )
    yield Operation(kind=OperationKind.ATTEND, source=Buffer.WIDE, target=Buffer.NARROW, index=index)
    yield from _added(layer.attention_output, in_parts=in_parts)
    yield _norm(Buffer.RESIDUAL, layer.feed_forward_norm_C, epsilon)
    yield _product(Buffer.NORMED, Buffer.WIDE, layer.gate_up)
    yield Operation(kind=OperationKind.GATE, source=Buffer.WIDE, target=Buffer.NARROW, size=width)
    yield from _added(layer.down, in_parts=in_parts)


def _norm(source: Buffer, weight_C: NDArray[np.float32], epsilon: float) -> Operation:
    return Operation(
        kind=OperationKind.NORM,
        source=source,
        target=Buffer.NORMED,
        size=len(weight_C),
        number=epsilon,
        weight=weight_C.ctypes.data,
    )


def _product(source: Buffer, target: Buffer, matrix: NativeMatrix, *, adds: bool = False) -> Operation:
    return Operation(
        kind=OperationKind.PRODUCT,
        source=source,
        target=target,
        flag=adds,
        matrix=ctypes.pointer(matrix.structure),
    )


def _added(matrix: NativeMatrix, *, in_parts: bool) -> Iterator[Operation]:
    """The product of what is in Buffer.NARROW, added to the residual; of several ranks once their parts are one."""
    if not in_parts:
        yield _product(Buffer.NARROW, Buffer.RESIDUAL, matrix, adds=True)
        return
    yield _product(Buffer.NARROW, Buffer.PART, matrix)
    yield Operation(kind=OperationKind.ADD, source=Buffer.PART, target=Buffer.RESIDUAL, size=matrix.outputs)


def _passages(operations: Sequence[Operation]) -> Iterator[Passage]:
    """The operations, cut after those whose result is a part of a sum."""
    begun: list[Operation] = []
    for operation in operations:
        begun.append(operation)
        if operation.target == Buffer.PART:
            yield Passage((Operation * len(begun))(*begun), len(begun), is_part=True)
            begun = []
    if begun:
        yield Passage((Operation * len(begun))(*begun), len(begun), is_part=False)
