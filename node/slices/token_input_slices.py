"""Which slices the matrices consist of that make what each layer of a stage gets of a token by itself.

A stage has what its layers get side by side: columns of the table, rows of the projection.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.model_parts import ModelPart
from layerline.models.spec import ModelSpec
from node.slices.feed_forward_slices import Slices
from node.slices.sides import Side
from node.slices.tensor_source import TensorSlice


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenInputSlices:
    """Those of a stage; of the table a rank has the rows of its tokens, and all of the rest."""

    table: TensorSlice
    projection: Slices
    norm: Slices

    @classmethod
    def of(cls, model: ModelSpec, part: ModelPart, layers: range) -> TokenInputSlices:
        """Those of these layers, of which a rank has `part`."""
        size = model.token_input
        hidden, one = (Side(length=length, part=range(length)) for length in (model.hidden, size))
        inputs = Side(length=model.layers * size, part=range(layers.start * size, layers.stop * size))
        tokens = Side(length=model.vocabulary, part=part.vocabulary)
        return cls(
            table=TensorSlice(name="token_table", rows=tokens, columns=inputs),
            projection=(TensorSlice(name="token_projection", rows=inputs, columns=hidden),),
            norm=(TensorSlice(name="token_norm", rows=one),),
        )
