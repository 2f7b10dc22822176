"""What the inputs that layers get of each token by itself take, in tables that all layers have one part of each."""

from __future__ import annotations

from collections.abc import Mapping

from layerline.models.decoder_rules import OF_TOKEN_INPUTS, TOKEN_PROJECTION, TOKEN_TABLE
from layerline.models.held import WeightForm
from layerline.models.spec import ModelSpec
from layerline.models.tensor_table import TensorEntry
from layerline.models.weight_size import WeightSize

TOKEN_TENSORS = frozenset(rule.name for rule in OF_TOKEN_INPUTS)


def token_input_sizes(
    model: ModelSpec, part: ModelSpec, entries: Mapping[str, TensorEntry], form: WeightForm
) -> list[WeightSize]:
    """What each layer has of the table and of the projection; a rank has the rows of its tokens, and all of the latter.

    A token reads one row of the table. A stage holds what its layers have side by side, which takes no more.
    """
    size, layers = model.token_input, range(model.layers)
    table, projection = entries[TOKEN_TABLE.name], entries[TOKEN_PROJECTION.name]
    held_in = form.storage(projection.storage, range(model.hidden), model.hidden)
    projected = form.matrix_bytes(held_in, size, model.hidden)
    sizes = []
    for layer in layers:
        own = range(layer * size, (layer + 1) * size)
        looked_up_in = form.storage(table.storage, own, len(layers) * size)
        converted = ((each.storage, held) for each, held in ((table, looked_up_in), (projection, held_in)))
        sizes.append(
            WeightSize(
                numbers=size * model.hidden,
                read_bytes=projected,
                held_bytes=projected + form.matrix_bytes(looked_up_in, part.vocabulary, size),
                converted=frozenset(each for each in converted if form.converts(*each)),
            )
        )
    return sizes


def token_norm_bytes(model: ModelSpec, form: WeightForm) -> int:
    """Bytes of the norm of the projection, which every stage has."""
    return form.vector_bytes(model.token_input)
