"""The decoder: plain single-device code for every family that a ModelSpec describes.

    x ← x + attention(norm(x))
    x ← x + feed_forward(norm(x))

Owns the order of the operations. How a matrix is held is behind `Linear`, where keys and values lie behind
`StepAttention`. Holds the layers of one stage, so that the ends (embedding, output) may be absent.

Source: Touvron et al., LLaMA (2023).

Shapes: T rows, C hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from layerline.models.spec import ModelSpec
from node.model.attention.backend import StepAttention
from node.model.embedding import Embedding
from node.model.feed_forward import GatedFeedForward
from node.model.linear.forms import Linear
from node.model.norm import Norm
from node.model.self_attention import SelfAttention


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer: attention and feed-forward, each behind a norm."""

    attention_norm: Norm
    attention: SelfAttention
    feed_forward_norm: Norm
    feed_forward: GatedFeedForward


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What turns the last layer's rows into logits."""

    norm: Norm
    matrix: Linear


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoder:
    """Neighbouring layers of a model, and those of its ends that belong to them."""

    spec: ModelSpec
    layers: Sequence[Layer]
    embedding: Embedding | None
    output: Output | None

    def embed(self, ids_T: Tensor) -> Tensor:
        """The first residual [T, C] of token ids; only where the first layer is."""
        assert self.embedding is not None, "this stage has no embedding"
        return self.embedding(ids_T)

    def layers_(self, x_TC: Tensor, step: StepAttention) -> None:
        """Passes the residual of a step's rows through the layers, in place."""
        ropes = {layer.attention.rope for layer in self.layers if layer.attention.rope is not None}
        turns = {rope: rope.turns_at(step.positions_T) for rope in ropes}
        for index, layer in enumerate(self.layers):
            x_TC += layer.attention(layer.attention_norm(x_TC), step, index, turns)
            x_TC += layer.feed_forward(layer.feed_forward_norm(x_TC))

    def logits(self, x_TC: Tensor) -> Tensor:
        """Logits [T, V] of rows that have passed the last layer, in the dtype of the stage; only where that is."""
        assert self.output is not None, "this stage has no output"
        return self.output.matrix(self.output.norm(x_TC))
