"""Where a model lies on the nodes of a cluster, how exactly they compute, and what their processors may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.bench.models import BenchModel

Cut = Literal["usual", "even for answers", "even for prompts", "planned"]
NODE_OVER_FILE = 1.3  # memory of each node where the planner is to cut: too little for all weights, keys and values


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """`first_layers` are those of the first of two nodes, 0 as `cut` says.

    `instructions` bounds what oneDNN uses (its ONEDNN_MAX_CPU_ISA), empty is all that there is: a machine with matrix
    units can so stand for one without. `precision` is what the coordinator is told as --precision, nothing if empty.
    """

    cut: Cut = "usual"
    first_layers: int = 0
    instructions: str = ""
    precision: str = ""

    def words(self, model: BenchModel, nodes: tuple[str, ...]) -> list[str]:
        """What the coordinator is told, so that the model is placed on one or two nodes."""
        precision = ["--precision", self.precision] if self.precision else []
        if len(nodes) == 1 or self.is_planned:
            return precision
        first_layers = self._layers_of_first(model)
        layers = f"{nodes[0]}=0-{first_layers - 1},{nodes[1]}={first_layers}-{model.layers - 1}"
        return ["--layers", layers, *precision]

    def node_words(self, nodes: int, file_bytes: int) -> list[str]:
        """What each of so many nodes is started with."""
        return ["--memory", f"{int(NODE_OVER_FILE * file_bytes)}B"] if nodes > 1 and self.is_planned else []

    @property
    def is_planned(self) -> bool:
        """Whether the planner cuts."""
        return self.cut == "planned" and not self.first_layers

    def _layers_of_first(self, model: BenchModel) -> int:
        if self.first_layers:
            return self.first_layers
        if self.cut == "usual":
            return model.first_layers
        return model.even_for_answers if self.cut == "even for answers" else model.even_for_prompts

    @property
    def environment(self) -> dict[str, str]:
        """What the nodes are started with."""
        return {"ONEDNN_MAX_CPU_ISA": self.instructions} if self.instructions else {}
