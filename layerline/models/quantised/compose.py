"""From the pieces that a folder stores to the matrices they are of, by names and shapes; no weight is read for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from layerline.models.quantised.config import Quantisation
from layerline.models.quantised.matrix import RECIPES
from layerline.models.quantised.recipe import PieceTensors, Recipe
from layerline.models.stored import tensor_corrupt
from layerline.models.tensor_table import StoredPiece, StoredTensor

MATRIX = ".weight"
READ_OVER = (".input_scale", ".input_zero_point", ".input_scale_ub")  # how activations would be rounded


def composed(stored: Sequence[StoredTensor], quantisation: Quantisation) -> tuple[StoredTensor, ...]:
    """The same tensors, a matrix in the place of its pieces.

    Raises ModelCorruptError for a piece that is missing, or is not of the shape or type that the others ask for.
    """
    recipe, by_name = RECIPES[quantisation.recipe], {tensor.name: tensor for tensor in stored}
    first, (ending,) = next(iter(recipe.needed.items()))
    made: dict[str, StoredTensor] = {}
    taken: set[str] = set()
    for tensor in stored:
        if not tensor.name.endswith(ending) or (recipe.storages and tensor.storage not in recipe.storages):
            continue
        name = tensor.name.removesuffix(ending)
        pieces = _pieces(name, recipe, tensor, by_name)
        if name + MATRIX in by_name and tensor.name != name + MATRIX:
            raise tensor_corrupt(name + MATRIX, tensor.file, f"is stored whole, and in pieces such as {tensor.name}")
        made[tensor.name] = _matrix(name + MATRIX, pieces, quantisation, first)
        taken |= {piece.name for piece in pieces.values()} | {name + read_over for read_over in READ_OVER}
    return tuple(made.get(tensor.name, tensor) for tensor in stored if tensor.name in made or tensor.name not in taken)


def _pieces(
    name: str, recipe: Recipe, first: StoredTensor, stored: Mapping[str, StoredTensor]
) -> dict[str, StoredTensor]:
    """The pieces of a matrix by role; of several endings the first that is there."""
    pieces: dict[str, StoredTensor] = {}
    for role, endings in (*recipe.needed.items(), *recipe.optional.items()):
        found = next((stored[name + ending] for ending in endings if name + ending in stored), None)
        if found is not None:
            pieces[role] = found
        elif role in recipe.needed:
            names = [name + ending for ending in endings]
            raise PieceTensors(name, {role: first}).missing(role, *names)
    return pieces


def _matrix(name: str, pieces: Mapping[str, StoredTensor], quantisation: Quantisation, first: str) -> StoredTensor:
    described = RECIPES[quantisation.recipe].described
    storage, shape = described(PieceTensors(name, pieces), quantisation)
    assert math.prod(shape) > 0, "no side of a stored tensor is empty"
    return StoredTensor(
        name=name,
        file=pieces[first].file,
        storage=storage,
        shape=shape,
        offset=0,
        nbytes=sum(piece.nbytes for piece in pieces.values()),
        recipe=quantisation.recipe,
        pieces=tuple(_piece(role, piece) for role, piece in pieces.items()),
    )


def _piece(role: str, stored: StoredTensor) -> StoredPiece:
    return StoredPiece(
        role=role,
        name=stored.name,
        file=stored.file,
        storage=stored.storage,
        shape=stored.shape,
        offset=stored.offset,
        nbytes=stored.nbytes,
    )
