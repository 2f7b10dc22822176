"""From slices of stored tensors to a matrix in the form in which it is multiplied.

Every block of rows is converted into its place as it is read, so that beside what is held there is never more than a
block, and one matrix while it is packed.

Shapes: R rows, B bytes of one, V vocabulary, C hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from layerline.models.held import CONVERTED, WeightForm, rows_bytes
from node.model.embedding import Embedding, PlainEmbedding
from node.model.linear.forms import Linear, owned_linear, shared_linear
from node.model.linear.stored import StoredEmbedding, StoredLinear, StoredRows
from node.model.stored.products import BlockKernels
from node.slices.stored_rows import in_storage
from node.slices.tensor_source import TensorSlice, TensorSource

_COMPILING = Lock()  # loading has several threads, and two need not compile the same


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldAs:
    """What weights are held as, and where; matrices in `weights`, vectors in the dtype that is computed in.

    `kernels` are what the device has for stored rows, if there is anything.
    """

    dtype: torch.dtype
    device: torch.device
    weights: str
    kernels: BlockKernels | None = None

    def storage(self, source: TensorSource, matrix: TensorSlice) -> str:
        """What a slice of a matrix is held in."""
        assert matrix.columns is not None, "a vector is held in the dtype"
        return self._form.storage(source.storage(matrix), matrix.columns.part, matrix.columns.length)

    @property
    def computed(self) -> str:
        """The storage of a matrix that is held in the dtype that is computed in."""
        return CONVERTED[self._form.dtype]

    @property
    def _form(self) -> WeightForm:
        return WeightForm(dtype=str(self.dtype).removeprefix("torch."), weights=self.weights, kernels=False)


def load_linear(
    source: TensorSource, slices: Sequence[TensorSlice], held_as: HeldAs, bias: Sequence[TensorSlice] = ()
) -> Linear:
    """The matrix of these slices, one below the other, which nothing else uses, and its bias if it has one."""
    bias_O = load_tensor(source, bias, held_as) if bias else None
    storages = [held_as.storage(source, part) for part in slices]
    if set(storages) == {held_as.computed}:
        return owned_linear(load_tensor(source, slices, held_as), bias_O)
    rows = [_stored_rows(source, part, storage, held_as) for part, storage in zip(slices, storages, strict=True)]
    return _stored_linear(rows, held_as, bias_O)


def load_embedding(source: TensorSource, matrix: TensorSlice, held_as: HeldAs) -> Embedding:
    """A matrix whose rows are looked up."""
    storage = held_as.storage(source, matrix)
    if storage == held_as.computed:
        return PlainEmbedding(load_tensor(source, [matrix], held_as))
    return StoredEmbedding(_stored_rows(source, matrix, storage, held_as), held_as.dtype)


def load_tied(source: TensorSource, matrix: TensorSlice, held_as: HeldAs) -> tuple[Embedding, Linear]:
    """A matrix whose rows are looked up and which is multiplied as well, held once."""
    storage = held_as.storage(source, matrix)
    if storage == held_as.computed:
        weight_VC = load_tensor(source, [matrix], held_as)
        return PlainEmbedding(weight_VC), shared_linear(weight_VC)
    rows = _stored_rows(source, matrix, storage, held_as)
    return StoredEmbedding(rows, held_as.dtype), _stored_linear([rows], held_as)


def _stored_linear(rows: Sequence[StoredRows], held_as: HeldAs, bias_O: Tensor | None = None) -> StoredLinear:
    """The matrix, after a first product: what few rows need is compiled now rather than in an answer."""
    linear = StoredLinear(rows, bias_O, held_as.kernels)
    if held_as.kernels is not None:
        with _COMPILING:
            linear(torch.zeros((1, rows[0].columns), dtype=held_as.dtype, device=held_as.device))
    return linear


def _stored_rows(source: TensorSource, matrix: TensorSlice, storage: str, held_as: HeldAs) -> StoredRows:
    rows, columns = matrix.shape
    order_I = None
    stored_RB = torch.empty((rows, rows_bytes(storage, 1, columns)), dtype=torch.uint8, device=held_as.device)
    for block in source.blocks(matrix):
        if block.storage == storage and block.order is not None and order_I is None:
            order_I = torch.from_numpy(block.order).long().to(held_as.device)
        read_RB = torch.from_numpy(in_storage(block, storage))
        held = stored_RB[block.first_row : block.first_row + len(read_RB)].copy_(read_RB)
        source.count(held.nbytes)
    return StoredRows(storage=storage, stored_RB=stored_RB, columns=columns, order_I=order_I)


def load_tensor(source: TensorSource, slices: Sequence[TensorSlice], held_as: HeldAs) -> Tensor:
    """The slices one below the other, as plain numbers."""
    shapes = [part.shape for part in slices]
    rows = [shape[0] for shape in shapes]
    tensor = torch.empty((sum(rows), *shapes[0][1:]), dtype=held_as.dtype, device=held_as.device)
    for part, place in zip(slices, torch.split(tensor, rows), strict=True):
        for block in source.blocks(part):
            numbers = torch.from_numpy(block.to_float32())
            held = place[block.first_row : block.first_row + len(numbers)].copy_(numbers)
            source.count(held.nbytes)
    return tensor
