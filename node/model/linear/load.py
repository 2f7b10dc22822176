"""From slices of stored tensors to a matrix in the form in which it is multiplied.

Every block of rows is converted into its place as it is read, so that beside what is held there is never more than a
block, and one matrix while it is packed.

Shapes: I inputs, O outputs, V vocabulary, C hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from node.model.embedding import Embedding, PlainEmbedding
from node.model.linear.forms import Linear, owned_linear, shared_linear
from node.slices.tensor_source import TensorSlice, TensorSource


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldAs:
    """What weights are held as, and where."""

    dtype: torch.dtype
    device: torch.device


def load_linear(
    source: TensorSource, slices: Sequence[TensorSlice], held_as: HeldAs, bias: Sequence[TensorSlice] = ()
) -> Linear:
    """The matrix of these slices, one below the other, which nothing else uses, and its bias if it has one."""
    return owned_linear(load_tensor(source, slices, held_as), load_tensor(source, bias, held_as) if bias else None)


def load_embedding(source: TensorSource, matrix: TensorSlice, held_as: HeldAs) -> Embedding:
    """A matrix whose rows are looked up."""
    return PlainEmbedding(load_tensor(source, [matrix], held_as))


def load_tied(source: TensorSource, matrix: TensorSlice, held_as: HeldAs) -> tuple[Embedding, Linear]:
    """A matrix whose rows are looked up and which is multiplied as well, held once."""
    weight_VC = load_tensor(source, [matrix], held_as)
    return PlainEmbedding(weight_VC), shared_linear(weight_VC)


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
