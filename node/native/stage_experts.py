"""The experts of a stage that the kernels compute: how many rows chose each, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from layerline.models.expert_placement import ExpertPlacement
from node.native.expert_load import LayerExperts
from node.slices.stage_part import StagePart


class NativeStageExperts:
    """The `StageExperts` of the layers in `layers`."""

    def __init__(self, own: StagePart, layers: Mapping[int, LayerExperts]) -> None:
        self._own = own
        self._layers = layers

    def rows(self) -> dict[int, tuple[int, ...]]:
        """How many rows chose each expert, layer by layer."""
        return {layer: tuple(self._layers[layer].experts.rows_N.tolist()) for layer in sorted(self._layers)}

    def prepared(self, layer: int, placement: ExpertPlacement) -> Callable[[], None]:
        """Loads what is missing for a layer; what is returned places its experts so."""
        return self._layers[layer].prepared(self._own.placed(layer, placement))
