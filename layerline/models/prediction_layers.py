"""Layers behind the last of a model that predict several tokens ahead: a draft for who speculates, and left out here.

Source: DeepSeek-V3 (2024), section 2.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from layerline.models.tensor_table import StoredTensor

NOTE = "Its layers that predict several tokens ahead are left out."
_OF_LAYER = re.compile(r"(?:model\.layers|blk)\.(\d{1,6})\.")


def of_prediction_layers(stored: Iterable[StoredTensor], layers: int, further: int) -> frozenset[str]:
    """The names of tensors of the so many `further` layers behind those of the model."""
    own = range(layers, layers + further)
    found = ((tensor.name, _OF_LAYER.match(tensor.name)) for tensor in stored)
    return frozenset(name for name, layer in found if layer and int(layer[1]) in own)
