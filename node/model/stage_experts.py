"""The experts of a stage that torch computes: loading those that a rank has, and further ones while others compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from layerline.models.expert_placement import ExpertPlacement
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.read import TensorReader
from node.model.experts import HeldExperts, RowPositions
from node.model.feed_forward import FeedForward, GatedFeedForward
from node.model.linear.load import HeldAs, load_linear
from node.slices.feed_forward_slices import ExpertsSlices, FeedForwardSlices
from node.slices.layer_slices import LayerSlices
from node.slices.stage_part import StagePart
from node.slices.tensor_source import TensorSource


class TorchStageExperts:
    """The `StageExperts` of a rank, held as `held_as` says; `positions` are those of the rows of each step."""

    def __init__(self, own: StagePart, held_as: HeldAs) -> None:
        self.positions = RowPositions(held_as.device)
        self._own = own
        self._held_as = held_as
        self._layers: dict[int, HeldExperts] = {}

    def load(self, source: TensorSource, layer: int, spec: FeedForwardSpec, slices: ExpertsSlices) -> HeldExperts:
        """Those of a layer that are here at first."""
        assert spec.experts is not None, "it has slices of experts"
        count, placement = spec.experts.count, self._own.placements.get(layer)
        placed = None if placement is None else self._own.placed(layer, placement)
        own = range(count) if placed is None else placed.own
        experts = {expert: self._expert(source, spec, slices, expert) for expert in own}
        held = self._layers[layer] = HeldExperts(experts, count, self.positions)
        if placed is not None:
            held.place_(experts, placed)
        return held

    @property
    def are_spread(self) -> bool:
        """Whether some are on other ranks."""
        return bool(self._own.placements)

    def rows(self) -> dict[int, tuple[int, ...]]:
        """How many rows chose each expert, layer by layer."""
        return {layer: tuple(self._layers[layer].rows_N.tolist()) for layer in sorted(self._layers)}

    @torch.inference_mode()
    def prepared(self, layer: int, placement: ExpertPlacement) -> Callable[[], None]:
        """Loads what is missing for a layer; what is returned places its experts so."""
        placed, held = self._own.placed(layer, placement), self._layers[layer]
        before = held.experts
        further = self._further(layer, [expert for expert in placed.own if expert not in before])
        after = {expert: before.get(expert) or further[expert] for expert in placed.own}
        return lambda: held.place_(after, placed)

    def _further(self, layer: int, experts: Iterable[int]) -> dict[int, FeedForward]:
        """These of a layer, read anew from its files."""
        slices = LayerSlices.of(self._own.model, self._own.part, layer).feed_forward
        assert isinstance(slices, ExpertsSlices), "the layer has experts"
        spec = self._own.own.layer(layer).feed_forward
        with TensorReader(self._own.path, self._own.card) as reader:
            source = TensorSource(self._own.card, reader, 0, lambda _done_bytes, _total_bytes: None)
            return {expert: self._expert(source, spec, slices, expert) for expert in experts}

    def _expert(self, source: TensorSource, spec: FeedForwardSpec, slices: ExpertsSlices, expert: int) -> FeedForward:
        return load_gated(source, spec, slices.experts[expert], self._held_as)


def load_gated(
    source: TensorSource, spec: FeedForwardSpec, slices: FeedForwardSlices, held_as: HeldAs
) -> GatedFeedForward:
    """A dense feed-forward, or an expert, of these slices."""
    return GatedFeedForward(
        activation=spec.activation,
        gate_up=load_linear(source, slices.gate_up, held_as, slices.gate_up_bias),
        down=load_linear(source, slices.down, held_as, slices.down_bias),
    )
