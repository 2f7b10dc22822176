"""What layers get of each token by itself: made of its row in a table and of its first residual.

    input = (norm(Wp · x₀ / √C) + √P · table[id]) / √2
    x ← x + norm(Wo · (activation(Wg · x) * input))

Source: the model code of Gemma 3n and Gemma 4 (per-layer embeddings).

Shapes: T rows, C hidden, L layers of the stage, P numbers that each gets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from layerline.models.feed_forward_spec import Activation
from node.model.embedding import Embedding
from node.model.feed_forward import gated
from node.model.linear.forms import Linear
from node.model.norm import Norm


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenInputs:
    """The table [V, LP] and the projection of what the layers of a stage get, and the norm of each layer's part."""

    size: int
    table: Embedding
    projection: Linear
    norm: Norm

    def __call__(self, ids_T: Tensor, first_TC: Tensor) -> tuple[Tensor, ...]:
        """The input [T, P] of each layer."""
        rows, hidden = first_TC.shape
        made_TLP = (self.projection(first_TC) * hidden**-0.5).view(rows, -1, self.size)
        looked_up_TLP = (self.table(ids_T) * math.sqrt(self.size)).view(rows, -1, self.size)
        return ((self.norm(made_TLP) + looked_up_TLP) * 2**-0.5).unbind(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenBranch:
    """What lets a layer's input through, and adds it to the residual."""

    activation: Activation
    gate: Linear
    output: Linear
    after: Norm

    def add_(self, x_TC: Tensor, input_TP: Tensor) -> None:
        """Adds it, in place."""
        x_TC.add_(self.after(self.output(gated(self.activation, self.gate(x_TC), input_TP))))
