"""What one rank of a stage loads: its part of the stage's layers of a model, from the files at a path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from layerline.models.card import ModelCard
from layerline.models.expert_placement import ExpertPlacement
from layerline.models.feed_forward_spec import ExpertsSpec
from layerline.models.model_parts import LayerPart, ModelPart, first_placements
from layerline.models.sizes import ModelSizes
from layerline.models.spec import ModelSpec
from layerline.plan import StageSpec
from node.slices.placed_experts import PlacedExperts


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePart:
    """That of `rank`. `parts` are those of all ranks; `placements` say for each layer where experts are at first."""

    card: ModelCard
    path: Path
    spec: StageSpec
    rank: int
    sizes: ModelSizes
    parts: tuple[ModelPart, ...]
    placements: Mapping[int, ExpertPlacement]

    @classmethod
    def of(cls, card: ModelCard, path: Path, spec: StageSpec, rank: int) -> StagePart:
        """PlanInvalidError if the model cannot be shared so."""
        sizes = ModelSizes.of_stage(card, spec)
        parts = sizes.parts(spec.sharing)
        layers = range(spec.first_layer, spec.last_layer + 1)
        return cls(
            card=card,
            path=path,
            spec=spec,
            rank=rank,
            sizes=sizes.of_rank(parts[rank]),
            parts=parts,
            placements=first_placements(card.spec, layers, parts),
        )

    @property
    def model(self) -> ModelSpec:
        """The whole model."""
        return self.card.spec

    @property
    def part(self) -> ModelPart:
        """The rank's own part of it."""
        return self.parts[self.rank]

    @property
    def own(self) -> ModelSpec:
        """That as a model of its own."""
        return self.part.part_of(self.model)

    @property
    def layers(self) -> range:
        """The numbers of its layers."""
        return range(self.spec.first_layer, self.spec.last_layer + 1)

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights."""
        return self.sizes.weights_bytes(self.layers)

    def of_layer(self, layer: int) -> LayerPart:
        """The rank's part of a layer."""
        return self.part.kinds[self.model.layer_kinds[layer]]

    def experts_of(self, layer: int) -> ExpertsSpec | None:
        """Those of a layer; None if it is dense."""
        return self.model.layer(layer).feed_forward.experts

    def placed(self, layer: int, placement: ExpertPlacement) -> PlacedExperts:
        """The rank's experts of a layer where they are placed so.

        ValueError if that is no placement of these experts, or the rank has no room for as many.
        """
        experts, whole = self.experts_of(layer), self.of_layer(layer).whole_experts
        if experts is None or whole is None:
            raise ValueError(f"the experts of layer {layer} are not spread")
        placement.check(experts.count, len(self.parts))
        if len(placement.ranks[self.rank]) > whole.room:
            own = len(placement.ranks[self.rank])
            raise ValueError(f"rank {self.rank} has room for {whole.room} experts of a layer, not for {own}")
        return PlacedExperts.of(experts, self.of_layer(layer), placement, self.rank)
