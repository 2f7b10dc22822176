"""Where the keys and values of a rank's heads lie in what a row carries of a layer: keys of all heads, then values.

Of a head that several ranks have, the first of them gives what the row carries.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.model_parts import ModelPart
from layerline.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class CarriedHeads:
    """Of one layer: all of its key-value heads, those of this rank, and those that it gives; sizes of a head."""

    all_heads: int
    own: range
    given: range
    head_dim: int
    value_dim: int

    @classmethod
    def of(cls, model: ModelSpec, part: ModelPart, layer: int) -> CarriedHeads:
        """Those of a layer of which a rank has `part`."""
        attention, own = model.layer(layer).attention, part.kinds[model.layer_kinds[layer]]
        group = attention.heads // attention.kv_heads
        return cls(
            all_heads=attention.kv_heads,
            own=own.kv_heads,
            given=range(-(-own.heads.start // group), own.kv_heads.stop),
            head_dim=attention.head_dim,
            value_dim=attention.value_dim,
        )

    @property
    def key_numbers(self) -> int:
        """Numbers of all keys."""
        return self.all_heads * self.head_dim
