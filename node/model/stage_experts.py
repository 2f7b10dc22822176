"""The experts of a stage that torch computes: loading those that a rank has, and further ones while others compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from layerline.models.expert_placement import ExpertPlacement
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.read import TensorReader
from node.model.experts import HeldExperts, RowPositions
from node.model.feed_forward import FeedForward, GatedFeedForward
from node.model.linear.load import HeldAs, load_linear
from node.slices.feed_forward_slices import ExpertsSlices, FeedForwardSlices
from node.slices.layer_slices import LayerSlices
from node.slices.placed_experts import PlacedExperts
from node.slices.stage_part import StagePart
from node.slices.tensor_source import TensorSource


class LoadsBeside(Protocol):
    """What loads experts for the CPU beside a device: `node.experts_beside.CpuBeside`."""

    def expert(self, source: TensorSource, spec: FeedForwardSpec, slices: FeedForwardSlices) -> FeedForward:
        """One of these slices, which takes rows in float32 on the CPU."""


class TorchStageExperts:
    """The `StageExperts` of a rank, held as `held_as` says; `positions` are those of the rows of each step.

    Some lie `beside` the device, if that is not None.
    """

    def __init__(self, own: StagePart, held_as: HeldAs, beside: LoadsBeside | None = None) -> None:
        self.positions = RowPositions(held_as.device)
        self._own = own
        self._held_as = held_as
        self._layers: dict[int, HeldExperts] = {}
        self._beside = beside

    def load(self, source: TensorSource, layer: int, spec: FeedForwardSpec, slices: ExpertsSlices) -> HeldExperts:
        """Those of a layer that are here at first."""
        assert spec.experts is not None, "it has slices of experts"
        count, placement = spec.experts.count, self._own.placements.get(layer)
        placed = None if placement is None else self._own.placed(layer, placement)
        if placed is None:
            experts = {expert: self._expert(source, spec, slices, expert) for expert in range(count)}
            held = HeldExperts(experts, count, self.positions)
        else:
            held = HeldExperts({}, count, self.positions)
            held.place_(*self._sides(placed, held, source, spec, slices), placed)
        self._layers[layer] = held
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
        slices = LayerSlices.of(self._own.model, self._own.part, layer).feed_forward
        assert isinstance(slices, ExpertsSlices), "the layer has experts"
        with TensorReader(self._own.path, self._own.card) as reader:
            source = TensorSource(self._own.card, reader, 0, lambda _done_bytes, _total_bytes: None)
            after = self._sides(placed, held, source, self._own.own.layer(layer).feed_forward, slices)
        return lambda: held.place_(*after, placed)

    def _sides(
        self,
        placed: PlacedExperts,
        before: HeldExperts,
        source: TensorSource,
        spec: FeedForwardSpec,
        slices: ExpertsSlices,
    ) -> tuple[dict[int, FeedForward], dict[int, FeedForward]]:
        """The experts on the device, and those beside it; what is not where it will be is loaded."""
        on_device = len(placed.own) if self._beside is None else self._own.spec.device_experts
        experts = {
            expert: before.experts.get(expert) or self._expert(source, spec, slices, expert)
            for expert in placed.own[:on_device]
        }
        beside: dict[int, FeedForward] = {}
        for expert in placed.own[on_device:]:
            assert self._beside is not None, "all are on the device"
            own = before.beside.get(expert)
            beside[expert] = own or self._beside.expert(source, spec, slices.experts[expert])
        return experts, beside

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
