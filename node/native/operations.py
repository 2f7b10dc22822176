"""Operations of a program that several parts of it have, and the buffers of rows that they work on."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

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
    ROUTED = 7  # logits of experts
    PAIRS = 8  # of a row and an expert: what the expert gets, then what it gives
    PAIRS_WIDE = 9  # its gate and up
    PAIRS_NARROW = 10  # what its gate lets through
    READING = 11  # with a latent: queries as they read, then the key
    KEY = 12  # the key there
    LATENT = 13  # what of that is the latent
    READ = 14  # what queries read of latents
    TAKEN = 15  # rows from another stage, with what they carry
    FIRST = 16  # the first residual there
    SENT = 17  # rows for another stage, with what they carry
    GIVEN = 18  # this rank's part of the keys and values that rows carry
    INPUTS = 19  # what the layers get of each token by itself, side by side


Operations = Iterator[Operation | Buffer]
"""A buffer is where the ranks bring the sum in it together."""


def product(source: Buffer, target: Buffer, matrix: NativeMatrix) -> Operation:
    """The product of these rows with a matrix."""
    return Operation(
        kind=OperationKind.PRODUCT,
        source=source,
        target=target,
        matrix=ctypes.pointer(matrix.structure),
    )


def turn(target: Buffer, rotation: int, heads: int, size: int) -> Operation:
    """Turns so many heads of `size` numbers, in place."""
    return Operation(kind=OperationKind.TURN, target=target, index=rotation, count=heads, size=size)


def norm(
    source: Buffer, target: Buffer, weight: NDArray[np.float32], epsilon: float, *, centred: bool = False
) -> Operation:
    """Norms rows by a weight; if `centred`, what is left of them without their mean."""
    return Operation(
        kind=OperationKind.NORM,
        source=source,
        target=target,
        flag=centred,
        size=len(weight),
        number=epsilon,
        weight=weight.ctypes.data,
    )


def head_norm(
    target: Buffer, first: int, heads: int, size: int, weight: NDArray[np.float32] | None, epsilon: float
) -> Operation:
    """Norms so many heads of `size` numbers from head `first` on, each by itself, in place."""
    return Operation(
        kind=OperationKind.HEAD_NORM,
        target=target,
        index=first,
        count=heads,
        size=size,
        number=epsilon,
        weight=None if weight is None else weight.ctypes.data,
    )


def copy(source: Buffer, first: int, target: Buffer, place: int, size: int) -> Operation:
    """So many numbers of rows from number `first` on become those of others from number `place` on."""
    return Operation(kind=OperationKind.COPY, source=source, target=target, index=first, count=place, size=size)


def scaled(target: Buffer, size: int, scale: float) -> Iterator[Operation]:
    """Multiplies so many numbers of rows, in place, unless by 1."""
    if scale != 1.0:
        yield Operation(kind=OperationKind.SCALE, target=target, size=size, number=scale)
