"""Recurrent layers of the kernels whose weights a test gives, without a file and without their first matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from layerline.models.recurrent import RecurrentSpec
from node.kernels.structures import Operation
from node.native.operations import Buffer
from node.native.recurrent import load_recurrent
from node.slices.feed_forward_slices import Slices
from node.slices.recurrent_slices import RecurrentSlices
from node.slices.sides import Side
from node.slices.tensor_source import TensorSlice
from tests.fakes.kernel_matrices import packed
from tests.fakes.stored_rows import stored_rows

Numbers = NDArray[np.float32]


def operations_of(
    spec: RecurrentSpec, weights: Mapping[str, Numbers], epsilon: float
) -> tuple[object, list[Operation]]:
    """What keeps the weights of such a layer, and what that does with rows which its first matrix has made.

    It is layer number 0 of a stage. `weights` are by the names of `RecurrentSlices`.
    """

    def slices(name: str) -> Slices:
        return (TensorSlice(name=name, rows=Side(length=1, part=range(1))),) if name in weights else ()

    never_used = packed("F32", stored_rows("F32", 16, 16, 0), 16)
    own = RecurrentSlices(
        made=(),
        made_bias=(),
        conv=slices("conv"),
        conv_bias=slices("conv_bias"),
        decay=slices("decay"),
        step_bias=slices("step_bias"),
        skip=slices("skip"),
        norm=slices("norm"),
    )

    def load_vector(wanted: Sequence[TensorSlice]) -> Numbers | None:
        return weights[wanted[0].name] if wanted else None

    layer = load_recurrent(spec, own, lambda rows, bias: never_used, load_vector, epsilon)
    _, *operations = layer.mixed(Buffer.NORMED, 0)
    return layer, cast("list[Operation]", operations)
